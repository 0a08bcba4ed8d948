// oracle renders every chart and kustomization below some directories twice, by the
// worker and by the command of the tool itself, and tells where the results differ.
//
//	oracle -worker W -helm H -kustomize K [-edits] DIR…
//
// A chart is rendered once with its own values and once with each file of its `ci`
// directory; a kustomization once as it is and, with -edits, once after the edits that
// Argo CD makes. Results are compared as sets of objects and as sequences. Charts whose
// output is not a function of the inputs are compared with all leaf values masked.
//
// With -edits the kustomizations are edited where they are and restored: give it copies.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"argosy/render-worker/internal/manifest"
	"argosy/render-worker/internal/wire"
)

func main() {
	log.SetFlags(0)
	worker := flag.String("worker", "argosy-render-worker", "the worker")
	helm := flag.String("helm", "helm", "the helm command")
	kustomize := flag.String("kustomize", "kustomize", "the kustomize command")
	edits := flag.Bool("edits", false, "compare kustomizations after edits too")
	options := flag.String("build-options", "", "options of kustomize build, for both")
	verbose := flag.Bool("v", false, "print every comparison")
	flag.Parse()

	for _, command := range []*string{worker, helm, kustomize} {
		path, err := exec.LookPath(*command)
		if err != nil {
			log.Fatal(err)
		}
		if *command, err = filepath.Abs(path); err != nil {
			log.Fatal(err)
		}
	}
	client, err := start(*worker)
	if err != nil {
		log.Fatal(err)
	}
	oracle := &oracle{client: client, helm: *helm, kustomize: *kustomize, options: *options, verbose: *verbose, counts: map[string]int{}}
	var works []work
	for _, root := range flag.Args() {
		root, err := filepath.Abs(root)
		if err != nil {
			log.Fatal(err)
		}
		works = append(works, find(root, *edits)...)
	}
	oracle.charts = indexCharts(works)
	for _, work := range works {
		oracle.compare(work)
	}
	oracle.summary()
	if oracle.differing > 0 {
		os.Exit(1)
	}
}

// work is one thing to render in both ways.
type work struct {
	name   string
	kind   string
	root   string
	dir    string
	values []string
	edited bool
	// dependencies are charts that the chart lacks and that were found elsewhere.
	dependencies []chart
	// build and commands are the same edits for worker and command.
	build    *wire.KustomizeBuild
	commands [][]string
}

func find(root string, edits bool) []work {
	var found []work
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == ".git" {
				return filepath.SkipDir
			}
			return nil
		}
		dir := filepath.Dir(path)
		name, _ := filepath.Rel(filepath.Dir(root), dir)
		switch entry.Name() {
		case "Chart.yaml":
			found = append(found, work{name: name, kind: "helm", root: root, dir: dir})
			sets, _ := filepath.Glob(filepath.Join(dir, "ci", "*values.yaml"))
			for _, set := range sets {
				found = append(found, work{name: name + " + ci/" + filepath.Base(set), kind: "helm", root: root, dir: dir, values: []string{set}})
			}
		case "kustomization.yaml", "kustomization.yml", "Kustomization":
			found = append(found, work{name: name, kind: "kustomize", root: root, dir: dir})
			if edits {
				found = append(found, work{name: name + " + edits", kind: "kustomize", root: root, dir: dir, edited: true})
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return found
}

type oracle struct {
	client          *client
	helm, kustomize string
	options         string
	verbose         bool
	counts          map[string]int
	objects         int
	differing       int
	// charts by name: where a missing dependency is looked for.
	charts map[string][]chart
}

func (o *oracle) compare(w work) {
	if w.kind == "helm" {
		w.dependencies = o.dependencies(w)
	}
	if w.edited {
		plain := w
		plain.edited = false
		w.build, w.commands = o.edits(plain)
	}
	ours, ourErr := o.byWorker(w)
	theirs, theirErr := o.byCommand(w)
	verdict, detail := judge(w, ours, ourErr, theirs, theirErr)
	kind := w.kind
	if w.edited {
		kind += " edit"
	}
	o.counts[kind+": "+verdict]++
	if verdict == "differs" {
		o.differing++
	}
	if ourErr == nil {
		o.objects += len(ours.GetObjects())
	}
	if o.verbose || verdict == "differs" {
		fmt.Printf("%-14s %s %s\n%s", verdict, w.kind, w.name, detail)
	}
}

func judge(w work, ours *wire.Rendered, ourErr error, theirs []manifest.Document, theirErr error) (verdict, detail string) {
	switch {
	case ourErr != nil && theirErr != nil:
		detail = indent("worker:  "+ourErr.Error()) + indent("command: "+theirErr.Error())
		words := strings.ReplaceAll(strings.ReplaceAll(theirErr.Error(), w.root+"/", ""), w.root, ".")
		if strings.Contains(words, ourErr.Error()) {
			return "both refuse, same words", detail
		}
		return "both refuse, other words", detail
	case ourErr != nil:
		return "differs", indent("worker alone refuses: " + ourErr.Error())
	case theirErr != nil:
		return "differs", indent("command alone refuses: " + theirErr.Error())
	}
	mask := len(ours.GetOpenInputs()) > 0
	left, right := make([]string, 0), make([]string, 0)
	for _, object := range ours.GetObjects() {
		left = append(left, canonical(object.GetJson(), mask))
	}
	for _, document := range theirs {
		right = append(right, canonical(document.JSON, mask))
	}
	if slices.Equal(left, right) {
		if mask {
			return "same (masked)", ""
		}
		return "same", ""
	}
	sortedLeft, sortedRight := slices.Sorted(slices.Values(left)), slices.Sorted(slices.Values(right))
	if slices.Equal(sortedLeft, sortedRight) {
		return "same set", indent("the order differs")
	}
	return "differs", onlyIn("worker", sortedLeft, sortedRight) + onlyIn("command", sortedRight, sortedLeft)
}

func onlyIn(who string, these, those []string) string {
	var out strings.Builder
	for _, text := range these {
		if !slices.Contains(those, text) {
			if len(text) > 600 {
				text = text[:600] + "…"
			}
			out.WriteString(indent("only by the " + who + ": " + text))
		}
	}
	return out.String()
}

func canonical(object []byte, mask bool) string {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return string(object)
	}
	if mask {
		value = masked(value)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return string(object)
	}
	return string(text)
}

func masked(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			value[key] = masked(child)
		}
		return value
	case []any:
		for at, child := range value {
			value[at] = masked(child)
		}
		return value
	case nil:
		return nil
	}
	return fmt.Sprintf("<%T>", value)
}

const (
	release     = "oracle"
	namespace   = "oracle-ns"
	kubeVersion = "1.33.4"
	apiVersion  = "monitoring.coreos.com/v1"
)

func (o *oracle) byWorker(w work) (*wire.Rendered, error) {
	request := &wire.Request{}
	if w.kind == "helm" {
		request.Call = &wire.Request_HelmTemplate{HelmTemplate: &wire.HelmTemplate{
			ChartDir: w.dir, TreeRoot: w.root, ReleaseName: release, Namespace: namespace,
			KubeVersion: kubeVersion, ApiVersions: []string{apiVersion}, ValuesFiles: w.values,
			DependencyCharts: dirs(w.dependencies),
		}}
	} else {
		build := w.build
		if build == nil {
			build = plainBuild(w)
		}
		build.BuildOptions = strings.Fields(o.options)
		request.Call = &wire.Request_KustomizeBuild{KustomizeBuild: build}
	}
	reply, err := o.client.call(request)
	if err != nil {
		log.Fatalf("%s: %v", w.name, err)
	}
	if failure := reply.GetError(); failure != nil {
		return nil, errors.New(failure.GetMessage())
	}
	return reply.GetRendered(), nil
}

func (o *oracle) byCommand(w work) ([]manifest.Document, error) {
	if w.kind == "helm" {
		return o.byHelm(w)
	}
	if w.edited {
		restore, err := o.editInPlace(w.dir, w.commands)
		defer restore()
		if err != nil {
			return nil, err
		}
	}
	out, err := run(w.dir, o.kustomize, append([]string{"build", w.dir}, strings.Fields(o.options)...)...)
	if err != nil {
		return nil, err
	}
	documents, _, err := manifest.Split(out)
	return documents, err
}

// editInPlace lets the command edit the kustomization in dir; restore brings it back.
func (o *oracle) editInPlace(dir string, commands [][]string) (restore func(), err error) {
	restore = func() {}
	for _, name := range []string{"kustomization.yaml", "kustomization.yml", "Kustomization"} {
		path := filepath.Join(dir, name)
		before, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		restore = func() {
			if err := os.WriteFile(path, before, 0o644); err != nil {
				log.Fatal(err)
			}
		}
	}
	for _, arguments := range commands {
		if _, err := run(dir, o.kustomize, append([]string{"edit"}, arguments...)...); err != nil {
			return restore, err
		}
	}
	return restore, nil
}

func (o *oracle) byHelm(w work) ([]manifest.Document, error) {
	arguments := []string{"template", ".", "--name-template", release, "--namespace", namespace, "--kube-version", kubeVersion,
		"--api-versions", apiVersion, "--include-crds"}
	for _, file := range w.values {
		arguments = append(arguments, "--values", file)
	}
	remove, err := place(w)
	defer remove()
	if err != nil {
		return nil, err
	}
	out, err := run(w.dir, o.helm, arguments...)
	if err != nil {
		return nil, err
	}
	documents, _, err := manifest.Split(out)
	return documents, err
}

func run(dir, name string, arguments ...string) ([]byte, error) {
	command := exec.Command(name, arguments...)
	command.Dir = dir
	// No PATH: the command, too, has to do without git and the network behind it.
	command.Env = []string{"HOME=/nonexistent", "HELM_CACHE_HOME=/nonexistent", "HELM_CONFIG_HOME=/nonexistent", "HELM_DATA_HOME=/nonexistent",
		"HTTP_PROXY=http://127.0.0.1:9", "HTTPS_PROXY=http://127.0.0.1:9"}
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(problems.String()))
	}
	return out.Bytes(), nil
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ") + "\n"
}

func (o *oracle) summary() {
	keys := make([]string, 0, len(o.counts))
	for key := range o.counts {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	for _, key := range keys {
		fmt.Printf("%6d %s\n", o.counts[key], key)
	}
	fmt.Printf("%6d objects\n", o.objects)
}
