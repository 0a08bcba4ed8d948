package kustomize

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/reads"
)

// tree is the file system that Kustomize sees: the disk, read only and only below the
// request's root and the copies of remotes, with the edited kustomization laid over it
// in memory. Relative paths start at dir, where `kustomize edit` believes to stand.
type tree struct {
	root    string
	dir     string
	remotes map[string]string
	// trees are what the remotes are parts of.
	trees []string
	read  *reads.Set

	// overlay is what the edits wrote, by absolute path without links.
	overlay map[string][]byte
	// copies are the files among the remotes, laid where a kustomization may load them.
	copies map[string]string
	// unmet are remotes without a copy that a kustomization named.
	unmet []string
	// shared: this build shares Kustomize's global OpenAPI schema with others, and may not
	// change it. wantsSchema tells that a kustomization asked to.
	shared      bool
	wantsSchema bool
	// mayInflate tells that a kustomization named charts, or generators that may.
	mayInflate bool
}

var _ filesys.FileSystem = (*tree)(nil)

func (t *tree) abs(name string) string {
	if !filepath.IsAbs(name) {
		name = filepath.Join(t.dir, name)
	}
	return filepath.Clean(name)
}

// resolve follows links and answers only for what the request may see.
func (t *tree) resolve(name string) (string, error) {
	name = t.abs(name)
	if _, edited := t.overlay[name]; edited {
		return name, nil
	}
	if _, copied := t.copies[name]; copied {
		return name, nil
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		if os.IsNotExist(err) && t.visible(name) {
			t.read.Absent(name)
		}
		return "", err
	}
	if !t.visible(real) {
		return "", &fs.PathError{Op: "open", Path: name, Err: fmt.Errorf("lies outside the tree: %w", fs.ErrPermission)}
	}
	if real != name && t.visible(name) {
		// A link, which may lead elsewhere in another tree. As a whole, for it may lead to a directory.
		t.read.Tree(name)
	}
	return real, nil
}

func (t *tree) visible(path string) bool {
	if confine.Inside(t.root, path) {
		return true
	}
	for _, whole := range t.trees {
		if confine.Inside(whole, path) {
			return true
		}
	}
	return false
}

func (t *tree) CleanedAbs(name string) (filesys.ConfirmedDir, string, error) {
	real, err := t.resolve(name)
	if err != nil {
		return "", "", fmt.Errorf("evalsymlink failure on '%s' : %w", name, err)
	}
	if t.IsDir(real) {
		return filesys.ConfirmedDir(real), "", nil
	}
	return filesys.ConfirmedDir(filepath.Dir(real)), filepath.Base(real), nil
}

func (t *tree) Exists(name string) bool {
	_, err := t.resolve(name)
	return err == nil
}

func (t *tree) IsDir(name string) bool {
	real, err := t.resolve(name)
	if err != nil {
		return false
	}
	info, err := os.Stat(real)
	return err == nil && info.IsDir()
}

func (t *tree) ReadDir(name string) ([]string, error) {
	real, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	t.read.Tree(real)
	entries, err := os.ReadDir(real)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for at, entry := range entries {
		names[at] = entry.Name()
	}
	return names, nil
}

func (t *tree) Glob(pattern string) ([]string, error) {
	if !strings.ContainsAny(pattern, `*?[\`) {
		if !t.Exists(pattern) {
			return nil, nil
		}
		return []string{pattern}, nil
	}
	matches, err := filepath.Glob(t.abs(pattern))
	if err != nil {
		return nil, err
	}
	matches = slices.DeleteFunc(matches, func(match string) bool { return !t.Exists(match) })
	t.read.Tree(globRoot(t.abs(pattern)))
	if !filepath.IsAbs(pattern) {
		for at, match := range matches {
			rel, err := filepath.Rel(t.dir, match)
			if err != nil {
				return nil, err
			}
			matches[at] = rel
		}
	}
	if !filesys.IsHiddenFilePath(pattern) {
		matches = filesys.RemoveHiddenFiles(matches)
	}
	return matches, nil
}

func globRoot(pattern string) string {
	for strings.ContainsAny(pattern, "*?[") {
		pattern = filepath.Dir(pattern)
	}
	return pattern
}

func (t *tree) ReadFile(name string) ([]byte, error) {
	content, err := t.content(name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(name)) {
		return t.kustomization(t.abs(name), content)
	}
	return content, nil
}

func (t *tree) content(name string) ([]byte, error) {
	real, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	if edited, ok := t.overlay[real]; ok {
		return bytes.Clone(edited), nil
	}
	if copied, ok := t.copies[real]; ok {
		real = copied
	}
	t.read.File(real)
	return os.ReadFile(real)
}

// kustomization looks at a kustomization on its way to Kustomize: remotes are turned to
// their copies, and a schema of its own is not let in while others share the global one.
func (t *tree) kustomization(name string, content []byte) ([]byte, error) {
	var known struct {
		OpenAPI    map[string]any `json:"openapi"`
		HelmCharts []any          `json:"helmCharts"`
		Inflators  []any          `json:"helmChartInflationGenerator"`
		Generators []any          `json:"generators"`
		Resources  []string       `json:"resources"`
		Bases      []string       `json:"bases"`
		Components []string       `json:"components"`
	}
	if err := yaml.Unmarshal(content, &known); err != nil {
		return content, nil // Kustomize has the better message.
	}
	if len(known.OpenAPI) > 0 && t.shared {
		t.wantsSchema = true
		return nil, fs.ErrPermission
	}
	if len(known.HelmCharts)+len(known.Inflators)+len(known.Generators) > 0 {
		t.mayInflate = true
	}
	entries := slices.Concat(known.Resources, known.Bases, known.Components)
	replaced := map[string]string{}
	for _, entry := range entries {
		if !looksRemote(entry) || t.Exists(filepath.Join(filepath.Dir(name), entry)) {
			continue
		}
		copy, ok := t.remotes[entry]
		if !ok {
			if !slices.Contains(t.unmet, entry) {
				t.unmet = append(t.unmet, entry)
			}
			continue
		}
		local, err := t.localName(filepath.Dir(name), copy, len(replaced))
		if err != nil {
			return nil, err
		}
		replaced[entry] = local
	}
	if len(replaced) == 0 {
		return content, nil
	}
	return replaceEntries(content, replaced)
}

// localName is the path by which the kustomization in dir reaches a copy: a directory by
// a relative path, a file (which Kustomize loads only from below dir) by a name in dir.
func (t *tree) localName(dir, copy string, number int) (string, error) {
	info, err := os.Stat(copy)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return filepath.Rel(dir, copy)
	}
	name := fmt.Sprintf(".argosy-remote-%d-%s", number, path.Base(copy))
	if t.copies == nil {
		t.copies = map[string]string{}
	}
	t.copies[filepath.Join(dir, name)] = copy
	return name, nil
}

func replaceEntries(content []byte, replaced map[string]string) ([]byte, error) {
	whole := map[string]any{}
	if err := yaml.Unmarshal(content, &whole); err != nil {
		return nil, err
	}
	for _, field := range []string{"resources", "bases", "components"} {
		list, ok := whole[field].([]any)
		if !ok {
			continue
		}
		for at, entry := range list {
			if text, ok := entry.(string); ok {
				if local, ok := replaced[text]; ok {
					list[at] = local
				}
			}
		}
	}
	return yaml.Marshal(whole)
}

// looksRemote tells whether Kustomize would try the network for an entry that is no
// file: a URL, an scp-like address or the bare name of a well-known host.
func looksRemote(entry string) bool {
	if strings.Contains(entry, "://") || strings.HasPrefix(entry, "git::") || strings.HasPrefix(entry, "git@") {
		return true
	}
	if strings.HasPrefix(entry, ".") || strings.HasPrefix(entry, "/") {
		return false
	}
	if strings.HasPrefix(entry, "github.com/") || strings.HasPrefix(entry, "github.com:") {
		return true
	}
	host, _, hasPath := strings.Cut(entry, "/")
	if user, rest, hasUser := strings.Cut(host, "@"); hasUser && user != "" && strings.Contains(rest, ":") {
		return true
	}
	return hasPath && strings.Contains(host, ".") &&
		(strings.Contains(entry, "?ref=") || strings.Contains(entry, ".git/") || strings.HasSuffix(entry, ".git"))
}

// WriteFile takes the edits: only a kustomization that is there may be written, and only in memory.
func (t *tree) WriteFile(name string, content []byte) error {
	real, err := t.resolve(name)
	if err != nil {
		return err
	}
	if !slices.Contains(konfig.RecognizedKustomizationFileNames(), filepath.Base(real)) {
		return readOnly("write", name)
	}
	if t.overlay == nil {
		t.overlay = map[string][]byte{}
	}
	t.overlay[real] = oneLine(content)
	return nil
}

// oneLine makes a kustomization one line of JSON. It means the same, and the edit
// commands, which look at each line with some thirty expressions compiled anew to keep
// the comments, have nothing to look at. What is not well-formed stays as it is, so that
// Kustomize complains of it.
func oneLine(content []byte) []byte {
	line, err := yaml.YAMLToJSONStrict(content)
	if err != nil || bytes.Equal(bytes.TrimSpace(line), []byte("null")) {
		return bytes.Clone(content)
	}
	return line
}

// kustomizationFile is the name of the request's own kustomization; empty if there is none.
func (t *tree) kustomizationFile() string {
	for _, name := range konfig.RecognizedKustomizationFileNames() {
		if t.Exists(name) {
			return name
		}
	}
	return ""
}

func (t *tree) Open(name string) (filesys.File, error) {
	real, err := t.resolve(name)
	if err != nil {
		return nil, err
	}
	t.read.File(real)
	return os.Open(real)
}

func (t *tree) Walk(name string, walk filepath.WalkFunc) error {
	real, err := t.resolve(name)
	if err != nil {
		return err
	}
	t.read.Tree(real)
	return filepath.Walk(real, walk)
}

func (t *tree) Create(name string) (filesys.File, error) { return nil, readOnly("create", name) }
func (t *tree) Mkdir(name string) error                  { return readOnly("mkdir", name) }
func (t *tree) MkdirAll(name string) error               { return readOnly("mkdir", name) }
func (t *tree) RemoveAll(name string) error              { return readOnly("remove", name) }

func readOnly(operation, name string) error {
	return &fs.PathError{Op: operation, Path: name, Err: fmt.Errorf("the tree is read-only: %w", fs.ErrPermission)}
}
