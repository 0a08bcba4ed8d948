package helm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

// web is a chart whose one ConfigMap shows what the template saw.
var web = map[string]string{
	"Chart.yaml":  "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: \"4.5\"\n",
	"values.yaml": "size: small\ncolour: chart\nnested:\n  a: 1\n  b: 2\n",
	"templates/seen.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-seen
  namespace: {{ .Release.Namespace }}
data:
  values: {{ toJson .Values | quote }}
  kube: {{ .Capabilities.KubeVersion.Version }}
  helm: {{ .Capabilities.HelmVersion.Version }}
  monitors: {{ .Capabilities.APIVersions.Has "monitoring.coreos.com/v1/ServiceMonitor" | quote }}
  install: {{ .Release.IsInstall | quote }}
`,
}

func render(t *testing.T, dir string, change func(*wire.HelmTemplate)) *wire.Rendered {
	t.Helper()
	rendered, err := try(dir, change)
	if err != nil {
		t.Fatal(err)
	}
	return rendered
}

func try(dir string, change func(*wire.HelmTemplate)) (*wire.Rendered, error) {
	request := &wire.HelmTemplate{ChartDir: dir, ReleaseName: "rel"}
	if change != nil {
		change(request)
	}
	return Template(request, &reads.Set{})
}

func refused(t *testing.T, dir string, kind wire.Error_Kind, change func(*wire.HelmTemplate)) *wire.Error {
	t.Helper()
	_, err := try(dir, change)
	if err == nil {
		t.Fatal("rendered, although it should not")
	}
	failure := fail.Of(err)
	if failure.GetKind() != kind {
		t.Fatalf("kind %s, want %s: %s", failure.GetKind(), kind, failure.GetMessage())
	}
	return failure
}

type object struct {
	APIVersion string
	Kind       string
	Metadata   struct {
		Name, Namespace string
		Annotations     map[string]string
	}
	Data map[string]any
}

func decode(t *testing.T, wired *wire.Object) object {
	t.Helper()
	var decoded object
	if err := json.Unmarshal(wired.GetJson(), &decoded); err != nil {
		t.Fatal(err)
	}
	return decoded
}

func seen(t *testing.T, rendered *wire.Rendered) object {
	t.Helper()
	if len(rendered.GetObjects()) == 0 {
		t.Fatal("no objects")
	}
	return decode(t, rendered.GetObjects()[0])
}

func values(t *testing.T, rendered *wire.Rendered) map[string]any {
	t.Helper()
	var values map[string]any
	if err := json.Unmarshal([]byte(seen(t, rendered).Data["values"].(string)), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

func names(t *testing.T, rendered *wire.Rendered) []string {
	t.Helper()
	var out []string
	for _, wired := range rendered.GetObjects() {
		decoded := decode(t, wired)
		out = append(out, decoded.Kind+"/"+decoded.Metadata.Name)
	}
	return out
}

func parameter(name, value string, kind wire.HelmParameter_Kind) *wire.HelmParameter {
	return &wire.HelmParameter{Name: name, Value: value, Kind: kind}
}

func TestReleaseNameAndNamespaceReachTheTemplate(t *testing.T) {
	got := seen(t, render(t, testtree.Write(t, web), func(r *wire.HelmTemplate) { r.Namespace = "shop" }))
	if got.Metadata.Name != "rel-seen" || got.Metadata.Namespace != "shop" || got.Data["install"] != "true" {
		t.Fatalf("%+v", got)
	}
}

func TestEmptyNamespaceIsDefault(t *testing.T) {
	if got := seen(t, render(t, testtree.Write(t, web), nil)); got.Metadata.Namespace != "default" {
		t.Fatalf("namespace %q", got.Metadata.Namespace)
	}
}

func TestObjectsNameTheirTemplate(t *testing.T) {
	rendered := render(t, testtree.Write(t, web), nil)
	if got := rendered.GetObjects()[0].GetSource(); got != "web/templates/seen.yaml" {
		t.Fatalf("source %q", got)
	}
}

func TestKubeVersionLosesItsSuffix(t *testing.T) {
	got := seen(t, render(t, testtree.Write(t, web), func(r *wire.HelmTemplate) { r.KubeVersion = "v1.30.11-gke.1245000" }))
	if got.Data["kube"] != "v1.30.11" {
		t.Fatalf("kube version %q", got.Data["kube"])
	}
}

func TestChartsSeeTheHelmReleaseThatArgoCDShips(t *testing.T) {
	if got := seen(t, render(t, testtree.Write(t, web), nil)); got.Data["helm"] != "v4.2.4" {
		t.Fatalf("helm version %q", got.Data["helm"])
	}
}

func TestBrokenKubeVersionIsABadRequest(t *testing.T) {
	refused(t, testtree.Write(t, web), wire.Error_REQUEST, func(r *wire.HelmTemplate) { r.KubeVersion = "new" })
}

func TestAPIVersionsAddToTheDefaults(t *testing.T) {
	dir := testtree.Write(t, web)
	if got := seen(t, render(t, dir, nil)); got.Data["monitors"] != "false" {
		t.Fatalf("%v", got.Data)
	}
	got := seen(t, render(t, dir, func(r *wire.HelmTemplate) { r.ApiVersions = []string{"monitoring.coreos.com/v1/ServiceMonitor"} }))
	if got.Data["monitors"] != "true" {
		t.Fatalf("%v", got.Data)
	}
}

func TestAPIVersionsThatAreWholeReplaceTheDefaults(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{"templates/asks.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: asks}\n" +
		"data: {old: '{{ .Capabilities.APIVersions.Has \"apps/v1beta2\" }}', new: '{{ .Capabilities.APIVersions.Has \"apps/v1\" }}'}\n"}))
	for _, whole := range []bool{true, false} {
		rendered := render(t, dir, func(r *wire.HelmTemplate) {
			r.ApiVersions = []string{"v1", "apps/v1"}
			r.ApiVersionsWhole = whole
		})
		for _, wired := range rendered.GetObjects() {
			if got := decode(t, wired); got.Metadata.Name == "asks" && (got.Data["old"] != fmt.Sprint(!whole) || got.Data["new"] != "true") {
				t.Fatalf("%v: %v", whole, got.Data)
			}
		}
	}
}

func TestValuesPrecedence(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{
		"one.yaml": "colour: one\nfile: one\nnested: {a: 10}\n",
		"two.yaml": "file: two\ntext: two\n",
	}))
	got := values(t, render(t, dir, func(r *wire.HelmTemplate) {
		r.ValuesFiles = []string{filepath.Join(dir, "one.yaml"), filepath.Join(dir, "two.yaml")}
		r.Values = "text: text\nset: text\n"
		r.Parameters = []*wire.HelmParameter{parameter("set", "parameter", wire.HelmParameter_SET)}
	}))
	for name, want := range map[string]any{"size": "small", "colour": "one", "file": "two", "text": "text", "set": "parameter"} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	if nested := got["nested"].(map[string]any); nested["a"] != 10.0 || nested["b"] != 2.0 {
		t.Errorf("nested maps are not merged: %v", nested)
	}
}

func TestNullInValuesRemovesAKeyOfTheChart(t *testing.T) {
	got := values(t, render(t, testtree.Write(t, web), func(r *wire.HelmTemplate) { r.Values = "nested: {a: null}\n" }))
	if nested := got["nested"].(map[string]any); len(nested) != 1 {
		t.Fatalf("%v", nested)
	}
}

func TestParametersAreTypedAsHelmTypesThem(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{"motd.txt": "line one\nline, two\n"}))
	got := values(t, render(t, dir, func(r *wire.HelmTemplate) {
		r.Parameters = []*wire.HelmParameter{
			parameter("number", "20161216", wire.HelmParameter_SET),
			parameter("yes", "true", wire.HelmParameter_SET),
			parameter("list", "{a,b}", wire.HelmParameter_SET),
			parameter("commas", "a,b", wire.HelmParameter_SET),
			parameter("escaped", `a\,b`, wire.HelmParameter_SET),
			parameter("items[1].name", "second", wire.HelmParameter_SET),
			parameter("text", "20161216", wire.HelmParameter_SET_STRING),
			parameter("motd", filepath.Join(dir, "motd.txt"), wire.HelmParameter_SET_FILE),
		}
	}))
	want := map[string]any{"number": 20161216.0, "yes": true, "commas": "a,b", "escaped": "a,b", "text": "20161216", "motd": "line one\nline, two\n"}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %#v, want %#v", name, got[name], value)
		}
	}
	if list := got["list"].([]any); len(list) != 2 || list[1] != "b" {
		t.Errorf("list is %v", list)
	}
	if items := got["items"].([]any); items[0] != nil || items[1].(map[string]any)["name"] != "second" {
		t.Errorf("items are %v", items)
	}
}

func TestStringParametersWinOverPlainOnes(t *testing.T) {
	got := values(t, render(t, testtree.Write(t, web), func(r *wire.HelmTemplate) {
		r.Parameters = []*wire.HelmParameter{
			parameter("tag", "7", wire.HelmParameter_SET_STRING),
			parameter("tag", "8", wire.HelmParameter_SET),
			parameter("twice", "first", wire.HelmParameter_SET),
			parameter("twice", "last", wire.HelmParameter_SET),
		}
	}))
	if got["tag"] != "7" || got["twice"] != "last" {
		t.Fatalf("%v", got)
	}
}

func TestBrokenValuesAreValuesErrors(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{"bad.yaml": "a: 1\nb: [\n"}))
	failure := refused(t, dir, wire.Error_VALUES, func(r *wire.HelmTemplate) { r.ValuesFiles = []string{filepath.Join(dir, "bad.yaml")} })
	if failure.GetFile() != "bad.yaml" || failure.GetLine() == 0 || strings.Contains(failure.GetMessage(), dir) {
		t.Fatalf("%v", failure)
	}
	refused(t, dir, wire.Error_VALUES, func(r *wire.HelmTemplate) { r.Values = "a: &x\nb: *y\n" })
	refused(t, dir, wire.Error_VALUES, func(r *wire.HelmTemplate) {
		r.Parameters = []*wire.HelmParameter{parameter("a[x]", "1", wire.HelmParameter_SET)}
	})
}

func TestAbsentValuesFileIsAnIOError(t *testing.T) {
	dir := testtree.Write(t, web)
	refused(t, dir, wire.Error_IO, func(r *wire.HelmTemplate) { r.ValuesFiles = []string{filepath.Join(dir, "none.yaml")} })
	refused(t, dir, wire.Error_REQUEST, func(r *wire.HelmTemplate) { r.ValuesFiles = []string{"none.yaml"} })
}

var extras = testtree.With(web, map[string]string{
	"crds/thing.yaml": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: things.example.test\n",
	"templates/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations:
    "helm.sh/hook": pre-install,pre-upgrade
    "helm.sh/hook-weight": "-5"
`,
	"templates/tests/ping.yaml": "apiVersion: v1\nkind: Pod\nmetadata:\n  name: ping\n  annotations:\n    \"helm.sh/hook\": test\n",
	"templates/NOTES.txt":       "thank you\n",
	"templates/empty.yaml":      "{{ if false }}a: b{{ end }}\n---\n# nothing\n",
	"templates/account.yaml":    "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n",
})

func TestOrderIsCRDsThenInstallOrderThenHooks(t *testing.T) {
	got := names(t, render(t, testtree.Write(t, extras), nil))
	want := []string{"CustomResourceDefinition/things.example.test", "ServiceAccount/web", "ConfigMap/rel-seen", "Job/migrate", "Pod/ping"}
	if slices.Sort(got[3:]); !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
}

func TestHooksKeepTheirAnnotations(t *testing.T) {
	for _, wired := range render(t, testtree.Write(t, extras), nil).GetObjects() {
		if decoded := decode(t, wired); decoded.Kind == "Job" {
			if decoded.Metadata.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" || decoded.Metadata.Annotations["helm.sh/hook-weight"] != "-5" {
				t.Fatalf("%v", decoded.Metadata.Annotations)
			}
			return
		}
	}
	t.Fatal("no hook")
}

func TestSkipCRDs(t *testing.T) {
	got := names(t, render(t, testtree.Write(t, extras), func(r *wire.HelmTemplate) { r.SkipCrds = true }))
	if slices.Contains(got, "CustomResourceDefinition/things.example.test") || len(got) != 4 {
		t.Fatalf("%v", got)
	}
}

func TestSkipTestsLeavesOutTestHooksOnly(t *testing.T) {
	got := names(t, render(t, testtree.Write(t, extras), func(r *wire.HelmTemplate) { r.SkipTests = true }))
	if slices.Contains(got, "Pod/ping") || !slices.Contains(got, "Job/migrate") {
		t.Fatalf("%v", got)
	}
}

var strict = testtree.With(web, map[string]string{
	"values.schema.json": `{"type":"object","properties":{"size":{"enum":["small","large"]}}}`,
})

func TestSchemaRefusesValues(t *testing.T) {
	dir := testtree.Write(t, strict)
	failure := refused(t, dir, wire.Error_SCHEMA, func(r *wire.HelmTemplate) { r.Values = "size: huge\n" })
	if !strings.Contains(failure.GetMessage(), "size") {
		t.Fatalf("%v", failure)
	}
}

func TestSkipSchemaValidation(t *testing.T) {
	got := values(t, render(t, testtree.Write(t, strict), func(r *wire.HelmTemplate) {
		r.Values, r.SkipSchemaValidation = "size: huge\n", true
	}))
	if got["size"] != "huge" {
		t.Fatalf("%v", got)
	}
}

func TestTemplateErrorsNameFileAndLine(t *testing.T) {
	for name, template := range map[string]string{
		"parse":    "a: b\n{{ if }}\n",
		"execute":  "a: b\nb: {{ fail \"not today\" }}\n",
		"required": "a: b\nb: {{ required \"host is needed\" .Values.host }}\n",
		"nil":      "a: b\nb: {{ .Values.none.deeper }}\n",
		"yaml":     "kind: A\n  b: c\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := testtree.Write(t, testtree.With(web, map[string]string{"templates/bad.yaml": template}))
			failure := refused(t, dir, wire.Error_TEMPLATE, nil)
			if failure.GetFile() != "templates/bad.yaml" || failure.GetLine() != 2 {
				t.Fatalf("%s:%d in %s", failure.GetFile(), failure.GetLine(), failure.GetMessage())
			}
		})
	}
}

func TestChartErrors(t *testing.T) {
	for name, chart := range map[string]string{
		"not YAML":     "apiVersion: [\n",
		"no version":   "apiVersion: v2\nname: web\n",
		"library":      "apiVersion: v2\nname: web\nversion: 1.0.0\ntype: library\n",
		"unknown API":  "apiVersion: v9\nname: web\nversion: 1.0.0\n",
		"wrong kube":   "apiVersion: v2\nname: web\nversion: 1.0.0\nkubeVersion: \"<1.2.0\"\n",
		"bad name":     "apiVersion: v2\nname: ../web\nversion: 1.0.0\n",
		"not a semver": "apiVersion: v2\nname: web\nversion: one\n",
	} {
		t.Run(name, func(t *testing.T) {
			dir := testtree.Write(t, testtree.With(web, map[string]string{"Chart.yaml": chart}))
			failure := refused(t, dir, wire.Error_CHART, nil)
			if failure.GetFile() != "Chart.yaml" {
				t.Fatalf("%v", failure)
			}
		})
	}
}

func TestDirectoryWithoutChartYAML(t *testing.T) {
	refused(t, testtree.Write(t, map[string]string{"readme": ""}), wire.Error_CHART, nil)
	refused(t, "/nowhere/at/all", wire.Error_IO, nil)
	refused(t, "relative", wire.Error_REQUEST, nil)
}

func TestBadReleaseNames(t *testing.T) {
	dir := testtree.Write(t, web)
	refused(t, dir, wire.Error_REQUEST, func(r *wire.HelmTemplate) { r.ReleaseName = "Upper_Case" })
	refused(t, dir, wire.Error_REQUEST, func(r *wire.HelmTemplate) { r.ReleaseName = "{{ randAlpha 3 }}" })
}

const parent = "apiVersion: v2\nname: web\nversion: 1.2.3\ndependencies:\n- name: shared\n  version: 1.x.x\n  repository: "

var shared = map[string]string{
	"shared/Chart.yaml":          "apiVersion: v2\nname: shared\nversion: 1.4.0\n",
	"shared/values.yaml":         "greeting: hello\n",
	"shared/templates/sub.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sub\ndata:\n  greeting: {{ .Values.greeting }}\n",
	"web/templates/account.yaml": "apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: web\n",
	"web/values.yaml":            "shared: {greeting: ahoy}\n",
}

func TestMissingDependencyIsListed(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{"web/Chart.yaml": parent + "https://charts.example.test\n"}))
	failure := refused(t, filepath.Join(root, "web"), wire.Error_DEPENDENCY, nil)
	if len(failure.GetDependencies()) != 1 {
		t.Fatalf("%v", failure)
	}
	missing := failure.GetDependencies()[0]
	if missing.GetName() != "shared" || missing.GetVersion() != "1.x.x" || missing.GetRepository() != "https://charts.example.test" {
		t.Fatalf("%v", missing)
	}
	if !strings.Contains(failure.GetMessage(), "found in Chart.yaml, but missing in charts/ directory: shared") {
		t.Fatalf("%v", failure)
	}
}

func TestFetchedDependencyIsUsed(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{"web/Chart.yaml": parent + "https://charts.example.test\n"}))
	got := render(t, filepath.Join(root, "web"), func(r *wire.HelmTemplate) { r.DependencyCharts = []string{filepath.Join(root, "shared")} })
	greets(t, got)
}

func TestDependencyInTheTreeIsUsed(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{"web/Chart.yaml": parent + "file://../shared\n"}))
	read := &reads.Set{}
	got, err := Template(&wire.HelmTemplate{ChartDir: filepath.Join(root, "web"), TreeRoot: root, ReleaseName: "rel"}, read)
	if err != nil {
		t.Fatal(err)
	}
	greets(t, got)
	if want := []string{filepath.Join(root, "shared"), filepath.Join(root, "web")}; !slices.Equal(read.Wire().GetTrees(), want) {
		t.Fatalf("%v", read.Wire())
	}
}

func TestALinkToADependencyIsAmongWhatWasRead(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{"web/Chart.yaml": parent + "file://../linked\n"}))
	if err := os.Symlink("shared", filepath.Join(root, "linked")); err != nil {
		t.Fatal(err)
	}
	read := &reads.Set{}
	if _, err := Template(&wire.HelmTemplate{ChartDir: filepath.Join(root, "web"), TreeRoot: root, ReleaseName: "rel"}, read); err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(root, "linked"), filepath.Join(root, "shared"), filepath.Join(root, "web")}
	if !slices.Equal(read.Wire().GetTrees(), want) {
		t.Fatalf("%v", read.Wire())
	}
}

func greets(t *testing.T, rendered *wire.Rendered) {
	t.Helper()
	for _, wired := range rendered.GetObjects() {
		if decoded := decode(t, wired); decoded.Metadata.Name == "sub" {
			if decoded.Data["greeting"] != "ahoy" || wired.GetSource() != "web/charts/shared/templates/sub.yaml" {
				t.Fatalf("%v %s", decoded.Data, wired.GetSource())
			}
			return
		}
	}
	t.Fatalf("the dependency rendered nothing: %v", names(t, rendered))
}

func TestDependencyOutsideTheTreeIsRefused(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{"web/Chart.yaml": parent + "file://../shared\n"}))
	refused(t, filepath.Join(root, "web"), wire.Error_IO, nil)
}

func TestDependencyOfAnotherVersionIsRefused(t *testing.T) {
	root := testtree.Write(t, testtree.With(shared, map[string]string{
		"web/Chart.yaml": strings.Replace(parent, "1.x.x", "2.x.x", 1) + "file://../shared\n",
	}))
	failure := refused(t, filepath.Join(root, "web"), wire.Error_CHART, func(r *wire.HelmTemplate) { r.TreeRoot = root })
	if failure.GetMessage() != "can't get a valid version for dependency shared" {
		t.Fatalf("%v", failure)
	}
}

func TestLinkOutOfTheTreeIsRefused(t *testing.T) {
	root := testtree.Write(t, testtree.With(web, map[string]string{}))
	if err := os.Symlink("/etc/passwd", filepath.Join(root, "templates", "stolen.yaml")); err != nil {
		t.Fatal(err)
	}
	failure := refused(t, root, wire.Error_IO, nil)
	if !strings.Contains(failure.GetMessage(), "templates/stolen.yaml") {
		t.Fatalf("%v", failure)
	}
}

func TestLinkInsideTheTreeIsFollowed(t *testing.T) {
	root := testtree.Write(t, map[string]string{
		"web/Chart.yaml": web["Chart.yaml"], "web/values.yaml": web["values.yaml"], "common/seen.yaml": web["templates/seen.yaml"],
	})
	if err := os.Symlink("../common", filepath.Join(root, "web", "templates")); err != nil {
		t.Fatal(err)
	}
	got := render(t, filepath.Join(root, "web"), func(r *wire.HelmTemplate) { r.TreeRoot = root })
	if len(got.GetObjects()) != 1 {
		t.Fatalf("%v", names(t, got))
	}
}

func TestImpureFunctionsAreNamed(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{
		"templates/random.yaml": "apiVersion: v1\nkind: Secret\nmetadata:\n  name: random\nstringData:\n  token: {{ randAlphaNum 12 }}\n  {{- if .Values.ca }}\n  ca: {{ (genCA \"ca\" 1).Cert | b64enc }}\n  {{- end }}\n",
	}))
	if got := render(t, dir, nil).GetOpenInputs(); !slices.Equal(got, []string{"randAlphaNum"}) {
		t.Fatalf("%v", got)
	}
	got := render(t, dir, func(r *wire.HelmTemplate) { r.Values = "ca: true\n" }).GetOpenInputs()
	if !slices.Equal(got, []string{"genCA", "randAlphaNum"}) {
		t.Fatalf("%v", got)
	}
	if got := render(t, testtree.Write(t, web), nil).GetOpenInputs(); got != nil {
		t.Fatalf("%v", got)
	}
}

func TestTheClusterAndTheEnvironmentAreOutOfReach(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{
		"templates/seen.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: seen\ndata:\n  lookup: {{ lookup \"v1\" \"Secret\" \"a\" \"b\" | toJson | quote }}\n  host: {{ getHostByName \"example.test\" | quote }}\n",
	}))
	got := seen(t, render(t, dir, nil))
	if got.Data["lookup"] != "{}" || got.Data["host"] != "" {
		t.Fatalf("%v", got.Data)
	}
	refused(t, testtree.Write(t, testtree.With(web, map[string]string{"templates/env.yaml": "a: {{ env \"HOME\" }}\n"})), wire.Error_TEMPLATE, nil)
}

func TestScalarsAreReadAsKubernetesToolsReadThem(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{
		"templates/seen.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: seen\ndata:\n  mode: 0644\n  on: yes\n  twice: first\n  twice: last\n  big: 12345678901234567890\n",
	}))
	got := string(render(t, dir, nil).GetObjects()[0].GetJson())
	for _, want := range []string{`"mode":420`, `"true":true`, `"twice":"last"`, `"big":12345678901234567890`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
}

func TestOutputLimit(t *testing.T) {
	refused(t, testtree.Write(t, web), wire.Error_LIMIT, func(r *wire.HelmTemplate) { r.MaxOutputBytes = 10 })
}

func TestDocumentThatIsNoObject(t *testing.T) {
	dir := testtree.Write(t, testtree.With(web, map[string]string{"crds/odd.yaml": "- a\n- b\n"}))
	failure := refused(t, dir, wire.Error_TEMPLATE, nil)
	if failure.GetFile() != "crds/odd.yaml" {
		t.Fatalf("%v", failure)
	}
}
