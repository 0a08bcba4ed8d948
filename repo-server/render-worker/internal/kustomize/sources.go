package kustomize

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"

	"argosy/render-worker/internal/confine"
)

// sources tells from which file an object came. Kustomize keeps no such thing in its
// output without changing it, so it is found again by kind and name among the files that
// were read; generated objects and doubtful cases have no source.
type sources struct{ files map[string][]origin }

type origin struct{ kind, name, file string }

const ambiguous = "?"

func newSources(tree *tree) *sources {
	found := &sources{files: map[string][]origin{}}
	for _, path := range tree.read.Files() {
		if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(path)) {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name := path
		if confine.Inside(tree.root, path) {
			if rel, err := filepath.Rel(tree.root, path); err == nil {
				name = rel
			}
		}
		for _, head := range heads(content) {
			head.file = name
			found.files[head.kind] = append(found.files[head.kind], head)
		}
	}
	return found
}

// of finds the file of an object; its name may have got a prefix and a suffix.
func (s *sources) of(kind, name string) string {
	exact, within := "", ""
	for _, candidate := range s.files[kind] {
		if candidate.name == name {
			exact = one(exact, candidate.file)
		} else if strings.Contains(name, candidate.name) {
			within = one(within, candidate.file)
		}
	}
	switch {
	case exact == ambiguous:
		return ""
	case exact != "":
		return exact
	case within == ambiguous:
		return ""
	}
	return within
}

func one(known, file string) string {
	if known == "" || known == file {
		return file
	}
	return ambiguous
}

// heads reads kind and metadata.name of each document by its lines: block style at the
// usual indent, which is what files written by people have. A patch has a head like the
// object that it patches, which makes the pair ambiguous, unless it says `$patch`.
func heads(content []byte) []origin {
	var found []origin
	for _, document := range bytes.Split(content, []byte("\n---")) {
		head := origin{}
		inMetadata := false
		for line := range bytes.Lines(document) {
			text := strings.TrimRight(string(line), " \r\n")
			switch {
			case strings.HasPrefix(text, "kind:"):
				head.kind = scalar(text)
			case strings.HasPrefix(text, "metadata:"):
				inMetadata = true
			case inMetadata && strings.HasPrefix(text, "  name:"):
				head.name = scalar(text)
			case text != "" && text[0] != ' ' && text[0] != '#':
				inMetadata = false
			}
		}
		if head.kind != "" && head.name != "" {
			found = append(found, head)
		}
	}
	return found
}

func scalar(line string) string {
	_, value, _ := strings.Cut(line, ":")
	value, _, _ = strings.Cut(value, " #")
	return strings.Trim(strings.TrimSpace(value), `"'`)
}
