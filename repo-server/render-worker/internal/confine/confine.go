// Package confine keeps a renderer away from everything but the trees that a
// request names: no environment, no network, no path outside.
package confine

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Process drops what a library could reach beside the request's own trees. It is a
// second fence: the sandbox around the process is the first.
//
// The Go runtime has read GOMEMLIMIT and GOMAXPROCS before main starts, so they
// stay in force. PATH is gone, so a library that wants `git` says that there is none.
func Process() {
	scratch := os.Getenv("TMPDIR")
	os.Clearenv()
	if scratch != "" {
		_ = os.Setenv("TMPDIR", scratch)
	}
	time.Local = time.UTC
	http.DefaultTransport = refuser{}
	http.DefaultClient = &http.Client{Transport: refuser{}}
}

type refuser struct{}

func (refuser) RoundTrip(request *http.Request) (*http.Response, error) {
	return nil, fmt.Errorf("the renderer has no network: %s", request.URL.Redacted())
}

// Inside reports whether path is root or below it. Both are clean and absolute.
func Inside(root, path string) bool {
	if path == root || root == string(filepath.Separator) {
		return true
	}
	return strings.HasPrefix(path, root+string(filepath.Separator))
}

// Links walks dir and fails on the first link that leads out of root or nowhere.
// Both are clean, absolute and free of links themselves.
func Links(root, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			if os.IsNotExist(err) {
				return nil
			}
			return err
		}
		if !Inside(root, target) {
			return fmt.Errorf("link %s leads out of the tree", relative(root, path))
		}
		return nil
	})
}

func relative(root, path string) string {
	if rel, err := filepath.Rel(root, path); err == nil {
		return rel
	}
	return path
}

// Redact takes the place of a tree on this machine out of a tool's message.
func Redact(message, root string) string {
	if root == "" || root == string(filepath.Separator) {
		return message
	}
	message = strings.ReplaceAll(message, root+string(filepath.Separator), "")
	return strings.ReplaceAll(message, root, ".")
}
