package helm

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"helm.sh/helm/v4/pkg/action"
	charter "helm.sh/helm/v4/pkg/chart"
	"helm.sh/helm/v4/pkg/chart/loader"
	chart "helm.sh/helm/v4/pkg/chart/v2"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// load reads the chart and completes it with the dependencies that are at hand. Those
// that are not at hand are an error of kind DEPENDENCY.
func load(place place, given []string, read *reads.Set) (*chart.Chart, error) {
	loaded, err := loadChart(place.root, place.chart, read)
	if err != nil {
		return nil, err
	}
	switch loaded.Metadata.Type {
	case "", "application":
	default:
		return nil, fail.New(wire.Error_CHART, loaded.Metadata.Type+" charts are not installable").At("Chart.yaml", 0)
	}
	if err := addGiven(loaded, given, read); err != nil {
		return nil, err
	}
	if err := addLocal(loaded, place, read); err != nil {
		return nil, err
	}
	return loaded, checkDependencies(loaded)
}

func loadChart(root, path string, read *reads.Set) (*chart.Chart, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fail.Wrap(wire.Error_IO, err)
	}
	if info.IsDir() {
		read.Tree(path)
		if err := confine.Links(root, path); err != nil {
			return nil, fail.Wrap(wire.Error_IO, err)
		}
	} else {
		read.File(path)
	}
	any, err := loader.Load(path)
	if err != nil {
		return nil, fail.New(wire.Error_CHART, err.Error()).At("Chart.yaml", 0)
	}
	loaded, ok := any.(*chart.Chart)
	if !ok {
		return nil, fail.New(wire.Error_CHART, "invalid chart apiVersion").At("Chart.yaml", 0)
	}
	if err := loaded.Validate(); err != nil {
		return nil, fail.New(wire.Error_CHART, err.Error()).At("Chart.yaml", 0)
	}
	return loaded, nil
}

// addGiven adds the charts that the caller fetched.
func addGiven(loaded *chart.Chart, paths []string, read *reads.Set) error {
	for _, path := range paths {
		if !filepath.IsAbs(path) {
			return fail.New(wire.Error_REQUEST, fmt.Sprintf("dependency chart %q is not absolute", path))
		}
		dependency, err := loadChart(path, path, read)
		if err != nil {
			return err
		}
		loaded.AddDependency(dependency)
	}
	return nil
}

// addLocal adds what `helm dependency build` would pack from a `file://` repository.
// Like it, it looks only at the chart's own list, not at the lists of what it adds.
func addLocal(loaded *chart.Chart, place place, read *reads.Set) error {
	for _, dependency := range missing(loaded) {
		path, isLocal := strings.CutPrefix(dependency.Repository, "file://")
		if !isLocal {
			continue
		}
		if !filepath.IsAbs(path) {
			path = filepath.Join(place.chart, path)
		}
		named := filepath.Clean(path)
		path, err := filepath.EvalSymlinks(named)
		if err != nil {
			return fail.New(wire.Error_CHART, fmt.Sprintf("dependency %s: directory %s not found", dependency.Name, dependency.Repository)).At("Chart.yaml", 0)
		}
		if !confine.Inside(place.root, path) {
			return fail.New(wire.Error_IO, fmt.Sprintf("dependency %s: %s leads out of the tree", dependency.Name, dependency.Repository))
		}
		if named != path && confine.Inside(place.root, named) {
			// A link, which may lead elsewhere in another tree.
			read.Tree(named)
		}
		found, err := loadChart(place.root, path, read)
		if err != nil {
			return err
		}
		if err := satisfies(found, dependency); err != nil {
			return err
		}
		loaded.AddDependency(found)
	}
	return nil
}

func satisfies(found *chart.Chart, dependency *chart.Dependency) error {
	constraint, err := semver.NewConstraint(dependency.Version)
	if err != nil {
		return fail.New(wire.Error_CHART, fmt.Sprintf("dependency %s has an invalid version/constraint format: %s", dependency.Name, err)).At("Chart.yaml", 0)
	}
	version, err := semver.NewVersion(found.Metadata.Version)
	if err != nil {
		return fail.New(wire.Error_CHART, err.Error())
	}
	if !constraint.Check(version) {
		return fail.New(wire.Error_CHART, fmt.Sprintf("can't get a valid version for dependency %s", dependency.Name)).At("Chart.yaml", 0)
	}
	return nil
}

// missing lists what Chart.yaml names and the chart does not carry.
func missing(loaded *chart.Chart) []*chart.Dependency {
	var absent []*chart.Dependency
	for _, dependency := range loaded.Metadata.Dependencies {
		if dependency == nil {
			continue
		}
		carried := slices.ContainsFunc(loaded.Dependencies(), func(sub *chart.Chart) bool {
			return sub.Name() == dependency.Name
		})
		if !carried {
			absent = append(absent, dependency)
		}
	}
	return absent
}

func checkDependencies(loaded *chart.Chart) error {
	var wanted []charter.Dependency
	for _, dependency := range loaded.Metadata.Dependencies {
		wanted = append(wanted, dependency)
	}
	if len(wanted) == 0 {
		return nil
	}
	if err := action.CheckDependencies(loaded, wanted); err != nil {
		failure := fail.New(wire.Error_DEPENDENCY,
			"an error occurred while checking for chart dependencies. You may need to run 'helm dependency build' to fetch missing dependencies: "+err.Error())
		absent, err := locked(loaded, missing(loaded))
		if err != nil {
			return err
		}
		failure.Wire.Dependencies = dependencies(absent)
		return failure.At("Chart.yaml", 0)
	}
	return nil
}

func dependencies(list []*chart.Dependency) []*wire.Dependency {
	var out []*wire.Dependency
	for _, dependency := range list {
		if dependency == nil {
			continue
		}
		out = append(out, &wire.Dependency{
			Name:       dependency.Name,
			Version:    dependency.Version,
			Repository: dependency.Repository,
			Alias:      dependency.Alias,
		})
	}
	return out
}

func init() {
	// Helm's loaders and coalescing speak through the default logger.
	slog.SetLogLoggerLevel(slog.LevelError)
}
