package kustomize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

func TestMain(m *testing.M) {
	scratch := os.TempDir()
	confine.Process()
	_ = os.Setenv("TMPDIR", scratch)
	os.Exit(m.Run())
}

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 1
  selector:
    matchLabels: {app: web}
  template:
    metadata:
      labels: {app: web}
    spec:
      initContainers:
      - name: init
        image: busybox
      containers:
      - name: web
        image: nginx:1.0
`

var app = map[string]string{
	"base/kustomization.yaml": "# the base\nresources:\n- deployment.yaml\n- service.yaml\n",
	"base/deployment.yaml":    deployment,
	"base/service.yaml":       "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  selector: {app: web}\n",
	"prod/kustomization.yaml": "resources:\n- ../base\n",
}

func build(t *testing.T, root string, change func(*wire.KustomizeBuild)) map[string]map[string]any {
	t.Helper()
	rendered, err := try(root, change)
	if err != nil {
		t.Fatal(err)
	}
	return byKind(t, rendered)
}

func byKind(t *testing.T, rendered *wire.Rendered) map[string]map[string]any {
	t.Helper()
	found := map[string]map[string]any{}
	for _, wired := range rendered.GetObjects() {
		decoded := map[string]any{}
		if err := json.Unmarshal(wired.GetJson(), &decoded); err != nil {
			t.Fatal(err)
		}
		found[decoded["kind"].(string)] = decoded
	}
	return found
}

func try(root string, change func(*wire.KustomizeBuild)) (*wire.Rendered, error) {
	request := &wire.KustomizeBuild{Root: root, Path: "prod"}
	if change != nil {
		change(request)
	}
	return Kustomizer{}.Build(request, &reads.Set{})
}

func refused(t *testing.T, root string, kind wire.Error_Kind, change func(*wire.KustomizeBuild)) *wire.Error {
	t.Helper()
	_, err := try(root, change)
	if err == nil {
		t.Fatal("built, although it should not")
	}
	failure := fail.Of(err)
	if failure.GetKind() != kind {
		t.Fatalf("kind %s, want %s: %s", failure.GetKind(), kind, failure.GetMessage())
	}
	if strings.Contains(failure.GetMessage(), root) {
		t.Errorf("the message tells where the tree lies: %s", failure.GetMessage())
	}
	return failure
}

// at reads a field by a path like "spec.template.spec.containers.0.image".
func at(t *testing.T, object map[string]any, path string) any {
	t.Helper()
	var value any = object
	for _, step := range strings.Split(path, ".") {
		switch node := value.(type) {
		case map[string]any:
			value = node[step]
		case []any:
			index := 0
			if _, err := fmt.Sscanf(step, "%d", &index); err != nil || index >= len(node) {
				t.Fatalf("%s: no item %s", path, step)
			}
			value = node[index]
		default:
			return nil
		}
	}
	return value
}

func TestPlainBuild(t *testing.T) {
	root := testtree.Write(t, app)
	read := &reads.Set{}
	rendered, err := Kustomizer{}.Build(&wire.KustomizeBuild{Root: root, Path: "prod"}, read)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, object := range rendered.GetObjects() {
		var head struct{ Kind string }
		if err := json.Unmarshal(object.GetJson(), &head); err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, head.Kind)
	}
	if want := []string{"Service", "Deployment"}; !slices.Equal(kinds, want) {
		t.Errorf("kinds %v", kinds)
	}
	for _, file := range []string{"prod/kustomization.yaml", "base/kustomization.yaml", "base/deployment.yaml", "base/service.yaml"} {
		if !slices.Contains(read.Wire().GetFiles(), filepath.Join(root, file)) {
			t.Errorf("%s is not among what was read: %v", file, read.Wire().GetFiles())
		}
	}
	if !slices.Contains(read.Wire().GetAbsent(), filepath.Join(root, "prod/kustomization.yml")) {
		t.Errorf("the other names of a kustomization are not among the absent: %v", read.Wire().GetAbsent())
	}
}

// A link may lead elsewhere in the next commit, where all files are as they were.
func TestLinksAreAmongWhatWasRead(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{"prod/kustomization.yaml": "resources:\n- linked\n"}))
	if err := os.Symlink("../base", filepath.Join(root, "prod/linked")); err != nil {
		t.Fatal(err)
	}
	read := &reads.Set{}
	if _, err := (Kustomizer{}).Build(&wire.KustomizeBuild{Root: root, Path: "prod"}, read); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(read.Wire().GetTrees(), filepath.Join(root, "prod/linked")) {
		t.Errorf("trees %v", read.Wire().GetTrees())
	}
	if !slices.Contains(read.Wire().GetFiles(), filepath.Join(root, "base/deployment.yaml")) {
		t.Errorf("files %v", read.Wire().GetFiles())
	}
}

// scalars are values whose types YAML and JSON may take for others.
const scalars = `apiVersion: example.com/v1
kind: Scalars
metadata:
  name: scalars
  annotations: {a: "1", b: "yes"}
spec:
  texts: ["1", "1.0", "0x10", "0o7", "010", "1e3", "1_000", "12:30:45", "2001-01-01", "2001-01-01T00:00:00Z", "true", "y", "no", "null", "~", "", " ", "!a", "&a", "*a", "#a", "- a", "a: b", "{a}", "\\t", "\\u0007", "\\u2028", "ü€😀", "<&>"]
  plain: [yes, on, y, 0x10, 0o7, 010, 1_000, 12:30:45, 2001-01-01, ~, null, .5]
  numbers: [0, -0, 1, -1, 1.0, 1.5, 1e3, 1e21, 1e-7, 123456789012, 9223372036854775807, 18446744073709551615, 100000000000000000000, 0.1]
  block: |
    one

      two
  folded: >-
    one
    two
  leading: |2
      three
  empty: {}
  none: []
  binary: !!binary aGVsbG8=
  tagged: [!!str 1, !!int "1", !!float 1]
  anchor: &anchor {a: 1}
  alias: *anchor
  merged: {<<: *anchor, b: 2}
  keys: {"yes": a, "1": b, "on": c, "<<": d, "=": e}
`

// What Argo CD takes from the command is its text, read as YAML.
func TestObjectsAreThoseOfTheCommandsText(t *testing.T) {
	for name, text := range map[string]string{"scalars": scalars, "deployment": deployment} {
		files := map[string]string{"kustomization.yaml": "resources: [a.yaml]\nnameSuffix: \"-1\"\nlabels: [{pairs: {team: \"1\"}}]\n", "a.yaml": text}
		root := testtree.Write(t, files)
		rendered, err := Kustomizer{}.Build(&wire.KustomizeBuild{Root: root}, &reads.Set{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), root)
		if err != nil {
			t.Fatal(err)
		}
		printed, err := resources.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		want, err := yaml.YAMLToJSON(printed)
		if err != nil {
			t.Fatal(err)
		}
		if got := rendered.GetObjects()[0].GetJson(); !bytes.Equal(got, want) {
			t.Errorf("%s:\n%s\nand by way of the text\n%s", name, got, want)
		}
	}
}

func TestOrderIsThatOfTheCommand(t *testing.T) {
	var many []string
	for _, kind := range slices.Concat(first, last, []string{"Pod", "Job", "Ingress", "Widget"}) {
		for _, version := range []string{"v1", "apps/v1", "b.example.com/v1", "b.example.com/v1beta1"} {
			for _, name := range []string{"b", "a-b", "a"} {
				for _, namespace := range []string{"", "y", "y-x"} {
					many = append(many, fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: %s, namespace: %q}\n", version, kind, name, namespace))
				}
			}
		}
	}
	// Cluster-wide kinds have no namespace: the same name in several is one too many.
	many = slices.DeleteFunc(many, func(text string) bool {
		return strings.Contains(text, "namespace: \"y") && (strings.Contains(text, "apiVersion: v1\n") || strings.Contains(text, "apiVersion: apps/v1\n"))
	})
	slices.Reverse(many)
	for name, more := range map[string]string{"as it is": "", "by its own order": "sortOptions: {order: legacy, legacySortOptions: {orderFirst: [Widget], orderLast: [Pod]}}\n", "as written": "sortOptions: {order: fifo}\n"} {
		root := testtree.Write(t, map[string]string{"kustomization.yaml": "resources: [a.yaml]\n" + more, "a.yaml": strings.Join(many, "---\n")})
		options := krusty.MakeDefaultOptions()
		options.Reorder = krusty.ReorderOptionUnspecified
		resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), root)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := Kustomizer{}.Build(&wire.KustomizeBuild{Root: root}, &reads.Set{})
		if err != nil {
			t.Fatal(err)
		}
		if len(rendered.GetObjects()) != len(many) {
			t.Fatalf("%d objects", len(rendered.GetObjects()))
		}
		for at, want := range resources.Resources() {
			text, err := want.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if got := rendered.GetObjects()[at].GetJson(); !bytes.Equal(got, text) {
				t.Fatalf("%s: %d is %s, not %s", name, at, got, text)
			}
		}
	}
}

func TestTwoObjectsThatArePatchedIntoOneName(t *testing.T) {
	root := testtree.Write(t, map[string]string{
		"kustomization.yaml": "resources: [a.yaml]\npatches: [{target: {name: b}, options: {allowNameChange: true}, patch: '[{op: replace, path: /metadata/name, value: a}]'}]\n",
		"a.yaml":             "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: default}\n",
	})
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified
	_, want := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), root)
	if want == nil {
		t.Fatal("Kustomize builds it")
	}
	_, err := Kustomizer{}.Build(&wire.KustomizeBuild{Root: root}, &reads.Set{})
	if err == nil || fail.Of(err).GetMessage() != want.Error() {
		t.Fatalf("%v, and Kustomize: %v", err, want)
	}
}

func TestRootIsTheDefaultPath(t *testing.T) {
	root := testtree.Write(t, map[string]string{"Kustomization": "resources:\n- a.yaml\n", "a.yaml": deployment})
	if got := build(t, root, func(r *wire.KustomizeBuild) { r.Path = "" }); len(got) != 1 {
		t.Fatalf("%v", got)
	}
}

func TestEachOptionOfTheSource(t *testing.T) {
	root := testtree.Write(t, app)
	for _, test := range []struct {
		name   string
		change func(*wire.KustomizeBuild)
		kind   string
		path   string
		want   any
	}{
		{"name prefix", func(r *wire.KustomizeBuild) { r.NamePrefix = "p-" }, "Deployment", "metadata.name", "p-web"},
		{"a prefix that looks like a flag", func(r *wire.KustomizeBuild) { r.NamePrefix = "-p-" }, "Deployment", "metadata.name", "-p-web"},
		{"name suffix", func(r *wire.KustomizeBuild) { r.NameSuffix = "-s" }, "Service", "metadata.name", "web-s"},
		{"namespace", func(r *wire.KustomizeBuild) { r.Namespace = "shop" }, "Service", "metadata.namespace", "shop"},
		{"image tag", func(r *wire.KustomizeBuild) { r.Images = []string{"nginx:2.0"} }, "Deployment", "spec.template.spec.containers.0.image", "nginx:2.0"},
		{"image name", func(r *wire.KustomizeBuild) { r.Images = []string{"nginx=example.test/web:3"} }, "Deployment", "spec.template.spec.containers.0.image", "example.test/web:3"},
		{"image digest", func(r *wire.KustomizeBuild) {
			r.Images = []string{"nginx@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3"}
		}, "Deployment", "spec.template.spec.containers.0.image", "nginx@sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3"},
		{"several images", func(r *wire.KustomizeBuild) { r.Images = []string{"nginx:2.0", "busybox=box"} }, "Deployment", "spec.template.spec.initContainers.0.image", "box"},
		{"replicas", func(r *wire.KustomizeBuild) { r.Replicas = []*wire.KustomizeReplica{{Name: "web", Count: 5}} }, "Deployment", "spec.replicas", 5.0},
		{"labels", func(r *wire.KustomizeBuild) { r.CommonLabels = map[string]string{"team": "a:b"} }, "Service", "metadata.labels.team", "a:b"},
		{"labels in selectors", func(r *wire.KustomizeBuild) { r.CommonLabels = map[string]string{"team": "a"} }, "Service", "spec.selector.team", "a"},
		{"labels without selectors", func(r *wire.KustomizeBuild) {
			r.CommonLabels, r.LabelWithoutSelector = map[string]string{"team": "a"}, true
		}, "Service", "spec.selector.team", nil},
		{"labels without selectors leave templates alone", func(r *wire.KustomizeBuild) {
			r.CommonLabels, r.LabelWithoutSelector = map[string]string{"team": "a"}, true
		}, "Deployment", "spec.template.metadata.labels.team", nil},
		{"labels in templates", func(r *wire.KustomizeBuild) {
			r.CommonLabels, r.LabelWithoutSelector, r.LabelIncludeTemplates = map[string]string{"team": "a"}, true, true
		}, "Deployment", "spec.template.metadata.labels.team", "a"},
		{"annotations", func(r *wire.KustomizeBuild) { r.CommonAnnotations = map[string]string{"why": "x, y: z"} }, "Service", "metadata.annotations.why", "x, y: z"},
		{"inline patch", func(r *wire.KustomizeBuild) {
			r.Patches = []*wire.KustomizePatch{{
				Patch:  "- op: replace\n  path: /spec/replicas\n  value: 9\n",
				Target: &wire.KustomizeSelector{Group: "apps", Version: "v1", Kind: "Deployment", Name: "web"},
			}}
		}, "Deployment", "spec.replicas", 9.0},
		{"patch that may change the name", func(r *wire.KustomizeBuild) {
			r.Patches = []*wire.KustomizePatch{{
				Patch:   "apiVersion: v1\nkind: Service\nmetadata:\n  name: other\n",
				Target:  &wire.KustomizeSelector{Kind: "Service"},
				Options: map[string]bool{"allowNameChange": true},
			}}
		}, "Service", "metadata.name", "other"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := build(t, root, test.change)
			if got := at(t, objects[test.kind], test.path); got != test.want {
				t.Fatalf("%s of %s is %v, want %v", test.path, test.kind, got, test.want)
			}
		})
	}
	if text, _ := os.ReadFile(filepath.Join(root, "prod/kustomization.yaml")); string(text) != app["prod/kustomization.yaml"] {
		t.Errorf("the tree was written: %q", text)
	}
}

func TestForceDecidesOverExistingLabelsAndAnnotations(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{
		"prod/kustomization.yaml": "resources:\n- ../base\ncommonLabels:\n  team: old\ncommonAnnotations:\n  why: old\n",
	}))
	labels := map[string]string{"team": "new"}
	refused(t, root, wire.Error_KUSTOMIZE, func(r *wire.KustomizeBuild) { r.CommonLabels = labels })
	refused(t, root, wire.Error_KUSTOMIZE, func(r *wire.KustomizeBuild) { r.CommonAnnotations = map[string]string{"why": "new"} })
	got := build(t, root, func(r *wire.KustomizeBuild) {
		r.CommonLabels, r.ForceCommonLabels = labels, true
		r.CommonAnnotations, r.ForceCommonAnnotations = map[string]string{"why": "new"}, true
	})
	if at(t, got["Service"], "metadata.labels.team") != "new" || at(t, got["Service"], "metadata.annotations.why") != "new" {
		t.Fatalf("%v", got["Service"])
	}
}

func TestPatchesAreAppended(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{
		"prod/kustomization.yaml": "resources:\n- ../base\npatches:\n- path: two.yaml\n",
		"prod/two.yaml":           "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 2\n",
		"prod/three.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\nspec:\n  replicas: 3\n",
	}))
	got := build(t, root, func(r *wire.KustomizeBuild) { r.Patches = []*wire.KustomizePatch{{Path: "three.yaml"}} })
	if at(t, got["Deployment"], "spec.replicas") != 3.0 {
		t.Fatalf("%v", got["Deployment"])
	}
}

var components = testtree.With(app, map[string]string{
	"components/tls/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations:\n  tls: \"on\"\n",
})

func TestComponents(t *testing.T) {
	root := testtree.Write(t, components)
	got := build(t, root, func(r *wire.KustomizeBuild) { r.Components = []string{"../components/tls"} })
	if at(t, got["Service"], "metadata.annotations.tls") != "on" {
		t.Fatalf("%v", got["Service"])
	}
}

func TestMissingComponents(t *testing.T) {
	root := testtree.Write(t, components)
	missing := func(r *wire.KustomizeBuild) { r.Components = []string{"../components/none", "../components/tls"} }
	refused(t, root, wire.Error_KUSTOMIZE, missing)
	got := build(t, root, func(r *wire.KustomizeBuild) { missing(r); r.IgnoreMissingComponents = true })
	if at(t, got["Service"], "metadata.annotations.tls") != "on" {
		t.Fatalf("%v", got["Service"])
	}
}

func TestRemotesAreListedAtOnce(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{
		"base/kustomization.yaml": "resources:\n- deployment.yaml\n- https://example.test/raw/crd.yaml\n",
		"prod/kustomization.yaml": "resources:\n- ../base\n- git@example.test:org/repo.git//deploy?ref=v1\n- github.com/org/other/deploy?ref=v2\n",
	}))
	failure := refused(t, root, wire.Error_REMOTE, nil)
	for _, want := range failure.GetRemotes() {
		if !strings.Contains(failure.GetMessage(), want) {
			t.Errorf("%s is not named in: %s", want, failure.GetMessage())
		}
	}
	if len(failure.GetRemotes()) < 2 {
		t.Errorf("%v", failure.GetRemotes())
	}
}

func TestCopiesOfRemotesAreUsed(t *testing.T) {
	root := testtree.Write(t, map[string]string{
		"prod/kustomization.yaml": "namePrefix: x-\nresources:\n- https://example.test/raw/service.yaml\n- github.com/org/other//deploy?ref=v2\n",
	})
	copies := testtree.Write(t, map[string]string{
		"service.yaml":              app["base/service.yaml"],
		"deploy/kustomization.yaml": "resources:\n- deployment.yaml\n",
		"deploy/deployment.yaml":    deployment,
	})
	got := build(t, root, func(r *wire.KustomizeBuild) {
		r.Remotes = map[string]string{
			"https://example.test/raw/service.yaml": filepath.Join(copies, "service.yaml"),
			"github.com/org/other//deploy?ref=v2":   filepath.Join(copies, "deploy"),
		}
		r.NameSuffix = "-y"
	})
	if at(t, got["Deployment"], "metadata.name") != "x-web-y" || at(t, got["Service"], "metadata.name") != "x-web-y" {
		t.Fatalf("%v", got)
	}
}

func TestNothingOutsideTheTreeIsRead(t *testing.T) {
	outside := testtree.Write(t, map[string]string{"kustomization.yaml": "resources:\n- a.yaml\n", "a.yaml": deployment})
	root := testtree.Write(t, app)
	rel, err := filepath.Rel(filepath.Join(root, "prod"), outside)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(root, "prod/kustomization.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("resources:\n- " + rel + "\n")
	refused(t, root, wire.Error_KUSTOMIZE, nil)
	write("resources:\n- " + rel + "/a.yaml\n")
	refused(t, root, wire.Error_KUSTOMIZE, func(r *wire.KustomizeBuild) {
		r.BuildOptions = []string{"--load-restrictor LoadRestrictionsNone"}
	})
	if err := os.Symlink(filepath.Join(outside, "a.yaml"), filepath.Join(root, "prod/link.yaml")); err != nil {
		t.Fatal(err)
	}
	write("resources:\n- link.yaml\n")
	refused(t, root, wire.Error_KUSTOMIZE, nil)
	refused(t, root, wire.Error_IO, func(r *wire.KustomizeBuild) { r.Path = "../.." })
}

func TestLoadRestrictor(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{"prod/kustomization.yaml": "resources:\n- ../base/service.yaml\n"}))
	refused(t, root, wire.Error_KUSTOMIZE, nil)
	for _, options := range [][]string{
		{"--load-restrictor", "LoadRestrictionsNone"}, {"--load-restrictor=LoadRestrictionsNone"}, {"--enable-managedby-label --load-restrictor LoadRestrictionsNone"},
	} {
		if got := build(t, root, func(r *wire.KustomizeBuild) { r.BuildOptions = options }); len(got) != 1 {
			t.Fatalf("%v", got)
		}
	}
}

func TestRefusedOptionsAreNamed(t *testing.T) {
	root := testtree.Write(t, app)
	for _, option := range []string{"--enable-alpha-plugins", "--enable-exec", "--network", "--mount type=bind", "-e A", "--enable-helm"} {
		failure := refused(t, root, wire.Error_REFUSED, func(r *wire.KustomizeBuild) { r.BuildOptions = []string{option} })
		if !strings.Contains(failure.GetMessage(), "--") {
			t.Errorf("%s", failure.GetMessage())
		}
	}
	refused(t, root, wire.Error_REQUEST, func(r *wire.KustomizeBuild) { r.BuildOptions = []string{"--no-such-option"} })
	refused(t, root, wire.Error_REQUEST, func(r *wire.KustomizeBuild) { r.BuildOptions = []string{"--load-restrictor none"} })
}

func TestChartsAreRefusedWithoutHelm(t *testing.T) {
	root := testtree.Write(t, map[string]string{"prod/kustomization.yaml": "helmCharts:\n- name: web\n  releaseName: web\n"})
	refused(t, root, wire.Error_REFUSED, nil)
}

func TestBrokenKustomizationsAreKustomizeErrors(t *testing.T) {
	for name, text := range map[string]string{
		"not YAML":      "resources: [\n",
		"unknown field": "resource:\n- a.yaml\n",
		"no such file":  "resources:\n- none.yaml\n",
		"empty":         "",
		"bad patch":     "resources:\n- ../base\npatches:\n- patch: \"{\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			refused(t, testtree.Write(t, testtree.With(app, map[string]string{"prod/kustomization.yaml": text})), wire.Error_KUSTOMIZE, nil)
		})
	}
	refused(t, testtree.Write(t, map[string]string{"prod/a.yaml": ""}), wire.Error_KUSTOMIZE, nil)
	refused(t, testtree.Write(t, app), wire.Error_IO, func(r *wire.KustomizeBuild) { r.Path = "none" })
}

func TestAnErrorNamesTheFile(t *testing.T) {
	root := testtree.Write(t, testtree.With(app, map[string]string{"base/deployment.yaml": "kind: [\n"}))
	failure := refused(t, root, wire.Error_KUSTOMIZE, nil)
	if failure.GetFile() == "" {
		t.Fatalf("%v", failure)
	}
}

func TestOutputLimit(t *testing.T) {
	refused(t, testtree.Write(t, app), wire.Error_LIMIT, func(r *wire.KustomizeBuild) { r.MaxOutputBytes = 10 })
}

// schemaOf declares a list of a made-up kind as a map by key, or says nothing.
const customSchema = `{"definitions":{"v1.Thing":{"type":"object","x-kubernetes-group-version-kind":[{"group":"example.test","version":"v1","kind":"Thing"}],
"properties":{"spec":{"type":"object","properties":{"parts":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}},
"x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"}}}}}}}`

func thing(openapi string) map[string]string {
	return map[string]string{
		"prod/kustomization.yaml": "resources:\n- thing.yaml\npatches:\n- path: patch.yaml\n" + openapi,
		"prod/thing.yaml":         "apiVersion: example.test/v1\nkind: Thing\nmetadata:\n  name: t\nspec:\n  parts:\n  - {name: a, n: 1}\n  - {name: b, n: 2}\n",
		"prod/patch.yaml":         "apiVersion: example.test/v1\nkind: Thing\nmetadata:\n  name: t\nspec:\n  parts:\n  - {name: b, n: 3}\n",
		"prod/schema.json":        customSchema,
	}
}

func TestASchemaOfOneBuildDoesNotReachAnother(t *testing.T) {
	withSchema := testtree.Write(t, thing("openapi:\n  path: schema.json\n"))
	without := testtree.Write(t, thing(""))
	parts := func(root string) int {
		rendered, err := try(root, nil)
		if err != nil {
			t.Error(err)
			return -1
		}
		var object struct{ Spec struct{ Parts []any } }
		if err := json.Unmarshal(rendered.GetObjects()[0].GetJson(), &object); err != nil {
			t.Error(err)
		}
		return len(object.Spec.Parts)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if got := parts(withSchema); got != 2 {
				t.Errorf("with the schema the list has %d parts, want 2", got)
			}
		})
		all.Go(func() {
			if got := parts(without); got != 1 {
				t.Errorf("without the schema the list has %d parts, want 1", got)
			}
		})
	}
	all.Wait()
}

func TestInspectListsImages(t *testing.T) {
	root := testtree.Write(t, app)
	details, err := Kustomizer{}.Inspect(&wire.KustomizeInspect{Build: &wire.KustomizeBuild{Root: root, Path: "prod", Images: []string{"nginx:2"}}}, &reads.Set{})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"busybox", "nginx:2"}; !slices.Equal(details.GetImages(), want) {
		t.Fatalf("%v", details.GetImages())
	}
}
