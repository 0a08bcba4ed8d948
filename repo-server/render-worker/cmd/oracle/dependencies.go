package main

import (
	"os"
	"path/filepath"

	"github.com/Masterminds/semver/v3"
	"sigs.k8s.io/yaml"

	"argosy/render-worker/internal/wire"
)

// chart is one that lies below the directories under comparison.
type chart struct{ name, version, dir string }

func indexCharts(works []work) map[string][]chart {
	index := map[string][]chart{}
	for _, w := range works {
		if w.kind != "helm" || len(w.values) > 0 {
			continue
		}
		text, err := os.ReadFile(filepath.Join(w.dir, "Chart.yaml"))
		if err != nil {
			continue
		}
		var head struct{ Name, Version string }
		if yaml.Unmarshal(text, &head) == nil {
			index[head.Name] = append(index[head.Name], chart{head.Name, head.Version, w.dir})
		}
	}
	return index
}

// dependencies finds what the worker says is missing among the other charts.
func (o *oracle) dependencies(w work) []chart {
	reply, err := o.client.call(&wire.Request{Call: &wire.Request_HelmInspect{HelmInspect: &wire.HelmInspect{ChartDir: w.dir, TreeRoot: w.root}}})
	if err != nil {
		return nil
	}
	var found []chart
	for _, missing := range reply.GetHelmDetails().GetMissingDependencies() {
		for _, candidate := range o.charts[missing.GetName()] {
			if fits(candidate.version, missing.GetVersion()) {
				found = append(found, candidate)
				break
			}
		}
	}
	return found
}

func fits(version, wanted string) bool {
	constraint, err := semver.NewConstraint(wanted)
	if err != nil {
		return false
	}
	parsed, err := semver.NewVersion(version)
	return err == nil && constraint.Check(parsed)
}

func dirs(charts []chart) []string {
	var out []string
	for _, chart := range charts {
		out = append(out, chart.dir)
	}
	return out
}

// place gives the command the same dependencies, in `charts`; those with a path inside
// the repository as well, which the worker finds by itself.
func place(w work) (remove func(), err error) {
	charts := filepath.Join(w.dir, "charts")
	_, statErr := os.Stat(charts)
	var placed []string
	remove = func() {
		for _, path := range placed {
			_ = os.RemoveAll(path)
		}
		if statErr != nil {
			_ = os.RemoveAll(charts)
		}
	}
	for _, dependency := range append(localDependencies(w), w.dependencies...) {
		to := filepath.Join(charts, dependency.name)
		if _, err := os.Stat(to); err == nil {
			continue
		}
		placed = append(placed, to)
		if err := os.CopyFS(to, os.DirFS(dependency.dir)); err != nil {
			return remove, err
		}
	}
	return remove, nil
}

func localDependencies(w work) []chart {
	text, err := os.ReadFile(filepath.Join(w.dir, "Chart.yaml"))
	if err != nil {
		return nil
	}
	var head struct {
		Dependencies []struct{ Name, Repository string }
	}
	if yaml.Unmarshal(text, &head) != nil {
		return nil
	}
	var found []chart
	for _, dependency := range head.Dependencies {
		if path, ok := cutFile(dependency.Repository); ok {
			if packed, _ := filepath.Glob(filepath.Join(w.dir, "charts", dependency.Name+"-*.tgz")); len(packed) > 0 {
				continue
			}
			found = append(found, chart{name: dependency.Name, dir: filepath.Join(w.dir, path)})
		}
	}
	return found
}

func cutFile(repository string) (string, bool) {
	const scheme = "file://"
	if len(repository) > len(scheme) && repository[:len(scheme)] == scheme {
		return repository[len(scheme):], true
	}
	return "", false
}
