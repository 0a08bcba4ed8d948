package helm

import (
	"slices"
	"strings"
	"testing"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

// What the public prometheus chart 25.21.0 has in its Chart.yaml and Chart.lock: the digest is Helm's own.
const (
	prometheus = `apiVersion: v2
name: prometheus
version: 25.21.0
dependencies:
  - name: alertmanager
    version: "1.10.*"
    repository: https://prometheus-community.github.io/helm-charts
    condition: alertmanager.enabled
  - name: kube-state-metrics
    version: "5.19.*"
    repository: https://prometheus-community.github.io/helm-charts
    condition: kube-state-metrics.enabled
  - name: prometheus-node-exporter
    version: "4.33.*"
    repository: https://prometheus-community.github.io/helm-charts
    condition: prometheus-node-exporter.enabled
  - name: prometheus-pushgateway
    version: "2.12.*"
    repository: https://prometheus-community.github.io/helm-charts
    condition: prometheus-pushgateway.enabled
`
	prometheusLock = `dependencies:
- name: alertmanager
  repository: https://prometheus-community.github.io/helm-charts
  version: 1.10.0
- name: kube-state-metrics
  repository: https://prometheus-community.github.io/helm-charts
  version: 5.19.0
- name: prometheus-node-exporter
  repository: https://prometheus-community.github.io/helm-charts
  version: 4.33.0
- name: prometheus-pushgateway
  repository: https://prometheus-community.github.io/helm-charts
  version: 2.12.0
digest: sha256:7eb369d369b0a09dce0d56c58dde9119651d1e0b1421249fa8abf5c3b0c81c04
generated: "2024-05-04T02:32:07.929606+03:00"
`
)

func wanted(t *testing.T, files map[string]string) []string {
	t.Helper()
	var versions []string
	for _, dependency := range refused(t, testtree.Write(t, files), wire.Error_DEPENDENCY, nil).GetDependencies() {
		versions = append(versions, dependency.GetName()+" "+dependency.GetVersion())
	}
	return versions
}

func TestALockPinsTheVersionsThatAreFetched(t *testing.T) {
	got := wanted(t, map[string]string{"Chart.yaml": prometheus, "Chart.lock": prometheusLock})
	want := []string{"alertmanager 1.10.0", "kube-state-metrics 5.19.0", "prometheus-node-exporter 4.33.0", "prometheus-pushgateway 2.12.0"}
	if !slices.Equal(got, want) {
		t.Fatalf("%v", got)
	}
	got = wanted(t, map[string]string{"Chart.yaml": prometheus})
	if !slices.Contains(got, "alertmanager 1.10.*") {
		t.Fatalf("%v", got)
	}
}

// The repository of an alias is known to whoever made the lock.
func TestALockOfAnAliasIsInSync(t *testing.T) {
	named := strings.ReplaceAll(prometheus, "https://prometheus-community.github.io/helm-charts", `"@prometheus"`)
	got := wanted(t, map[string]string{"Chart.yaml": named, "Chart.lock": prometheusLock})
	if !slices.Contains(got, "alertmanager 1.10.0") {
		t.Fatalf("%v", got)
	}
}

func TestALockOfOtherDependenciesIsRefused(t *testing.T) {
	newer := strings.Replace(prometheus, "1.10.*", "1.11.*", 1)
	dir := testtree.Write(t, map[string]string{"Chart.yaml": newer, "Chart.lock": prometheusLock})
	failure := refused(t, dir, wire.Error_CHART, nil)
	if !strings.Contains(failure.GetMessage(), "the lock file (Chart.lock) is out of sync with the dependencies file (Chart.yaml)") {
		t.Fatalf("%v", failure)
	}
}

// The digest of a chart in Helm's own tests, made by Helm 2.
func TestALockOfHelm2IsInSyncByItsOwnDigest(t *testing.T) {
	alpine := []*chart.Dependency{{Name: "alpine", Version: "0.1.0", Repository: "file://../alpine"}}
	lock := &chart.Lock{
		Digest:       "sha256:7b380b1a826e7be1eecb089f66209d6d3df54be4bf879d4a8e6f8a9e871710e5",
		Dependencies: alpine,
	}
	for version, want := range map[string]bool{chart.APIVersionV1: true, chart.APIVersionV2: false} {
		if got := inSync(&chart.Metadata{APIVersion: version, Dependencies: alpine}, lock); got != want {
			t.Errorf("%s: %t", version, got)
		}
	}
}
