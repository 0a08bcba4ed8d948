// Package testtree lays out small trees for tests.
package testtree

import (
	"os"
	"path/filepath"
	"testing"
)

// Write makes a directory with these files, by relative path, and returns it free of links.
func Write(t *testing.T, files map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	Into(t, root, files)
	return root
}

// Into writes the files below a directory.
func Into(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// With is a map with some entries replaced or added.
func With(base map[string]string, more map[string]string) map[string]string {
	all := map[string]string{}
	for name, content := range base {
		all[name] = content
	}
	for name, content := range more {
		all[name] = content
	}
	return all
}
