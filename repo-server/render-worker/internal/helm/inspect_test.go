package helm

import (
	"path/filepath"
	"slices"
	"testing"

	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

func TestInspectShowsWhatGetAppDetailsShows(t *testing.T) {
	dir := testtree.Write(t, map[string]string{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\nappVersion: \"4.5\"\ndescription: A web\nhome: https://example.test\n" +
			"maintainers:\n- name: Ann\n  email: ann@example.test\ndependencies:\n- name: cache\n  version: ^1\n  repository: https://charts.example.test\n  alias: store\n",
		"values.yaml":          "# the size\nsize: 1\nimage: {tag: \"1.10\"}\nhosts: [a, {b: true}]\nnothing: null\nempty: {}\n",
		"values-prod.yaml":     "size: 3\n",
		"env/my-values-x.YML":  "size: 4\n",
		"templates/other.yaml": "",
	})
	details, err := Inspect(&wire.HelmInspect{ChartDir: dir, ValuesFiles: []string{
		filepath.Join(dir, "values-prod.yaml"), filepath.Join(dir, "values-none.yaml"),
	}}, &reads.Set{})
	if err != nil {
		t.Fatal(err)
	}
	if details.GetName() != "web" || details.GetVersion() != "1.2.3" || details.GetAppVersion() != "4.5" || details.GetMaintainers()[0] != "Ann <ann@example.test>" {
		t.Errorf("%v", details)
	}
	if want := []string{"env/my-values-x.YML", "values-prod.yaml", "values.yaml"}; !slices.Equal(details.GetValuesFiles(), want) {
		t.Errorf("values files %v", details.GetValuesFiles())
	}
	if details.GetValues()[:10] != "# the size" {
		t.Errorf("values lost their comments: %q", details.GetValues())
	}
	var got []string
	for _, parameter := range details.GetParameters() {
		got = append(got, parameter.GetName()+"="+parameter.GetValue())
	}
	if want := []string{"hosts[0]=a", "hosts[1].b=true", "image.tag=1.10", "nothing=<nil>", "size=3"}; !slices.Equal(got, want) {
		t.Errorf("parameters %v", got)
	}
	missing := details.GetMissingDependencies()
	if len(missing) != 1 || missing[0].GetName() != "cache" || missing[0].GetAlias() != "store" {
		t.Errorf("missing %v", missing)
	}
}

func TestInspectFailsOnBrokenValues(t *testing.T) {
	dir := testtree.Write(t, map[string]string{"Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.2.3\n", "values.yaml": "a: [\n"})
	if _, err := Inspect(&wire.HelmInspect{ChartDir: dir}, &reads.Set{}); err == nil {
		t.Fatal("inspected a chart with broken values")
	}
}
