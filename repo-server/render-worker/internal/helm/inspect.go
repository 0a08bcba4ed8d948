package helm

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	chart "helm.sh/helm/v4/pkg/chart/v2"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// Inspect tells what Argo CD's GetAppDetails shows of a chart.
func Inspect(request *wire.HelmInspect, read *reads.Set) (*wire.HelmDetails, error) {
	place, err := locate(request.GetChartDir(), request.GetTreeRoot())
	if err != nil {
		return nil, err
	}
	details, err := inspect(request, place, read)
	if err != nil {
		failure := fail.Of(err)
		failure.Message = confine.Redact(failure.Message, place.root)
		failure.File = confine.Redact(failure.File, place.root)
		return nil, &fail.Error{Wire: failure}
	}
	return details, nil
}

func inspect(request *wire.HelmInspect, place place, read *reads.Set) (*wire.HelmDetails, error) {
	loaded, err := loadChart(place.root, place.chart, read)
	if err != nil {
		return nil, err
	}
	if err := addLocal(loaded, place, read); err != nil {
		return nil, err
	}
	own := ownValues(loaded)
	parameters, err := parameters(own, request.GetValuesFiles(), read)
	if err != nil {
		return nil, err
	}
	files, err := valuesFiles(place.chart)
	if err != nil {
		return nil, err
	}
	details := &wire.HelmDetails{
		Name:                loaded.Metadata.Name,
		Version:             loaded.Metadata.Version,
		AppVersion:          loaded.Metadata.AppVersion,
		Description:         loaded.Metadata.Description,
		Home:                loaded.Metadata.Home,
		ValuesFiles:         files,
		Values:              own,
		Parameters:          parameters,
		MissingDependencies: dependencies(missing(loaded)),
		Dependencies:        dependencies(loaded.Metadata.Dependencies),
	}
	for _, maintainer := range loaded.Metadata.Maintainers {
		if maintainer == nil {
			continue
		}
		text := maintainer.Name
		if maintainer.Email != "" {
			text = strings.TrimSpace(text + " <" + maintainer.Email + ">")
		}
		details.Maintainers = append(details.Maintainers, text)
	}
	return details, nil
}

// ownValues is the text of values.yaml, comments and all.
func ownValues(loaded *chart.Chart) string {
	for _, file := range loaded.Raw {
		if file.Name == "values.yaml" {
			return string(file.Data)
		}
	}
	return ""
}

// parameters flattens the chart's values and the files over them: a later file wins
// name by name, lists too.
func parameters(own string, files []string, read *reads.Set) ([]*wire.HelmParameter, error) {
	flat := map[string]string{}
	if err := flattenText([]byte(own), "values.yaml", flat); err != nil {
		return nil, err
	}
	for _, path := range files {
		text, err := readAbsolute(path, read)
		if isAbsent(path, err) {
			read.Absent(path)
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := flattenText(text, path, flat); err != nil {
			return nil, err
		}
	}
	var out []*wire.HelmParameter
	for _, name := range slices.Sorted(maps.Keys(flat)) {
		out = append(out, &wire.HelmParameter{Name: name, Value: flat[name]})
	}
	return out, nil
}

func isAbsent(path string, err error) bool {
	if err == nil {
		return false
	}
	_, statErr := os.Stat(path)
	return errors.Is(statErr, fs.ErrNotExist)
}

func flattenText(text []byte, name string, into map[string]string) error {
	values := map[string]any{}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return fail.New(wire.Error_VALUES, fmt.Sprintf("failed to parse values: %s", err)).At(filepath.Base(name), 0)
	}
	for key, value := range values {
		flatten(value, key, into)
	}
	return nil
}

func flatten(value any, name string, into map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			flatten(child, name+"."+key, into)
		}
	case []any:
		for at, child := range value {
			flatten(child, fmt.Sprintf("%s[%d]", name, at), into)
		}
	default:
		into[name] = fmt.Sprintf("%v", value)
	}
}

// valuesFiles are the files that a person may choose from, relative to the chart.
func valuesFiles(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, fail.Wrap(wire.Error_IO, err)
	}
	if !info.IsDir() {
		return nil, nil
	}
	var found []string
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		extension := strings.ToLower(filepath.Ext(path))
		if strings.Contains(entry.Name(), "values") && (extension == ".yaml" || extension == ".yml") {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			found = append(found, rel)
		}
		return nil
	})
	return found, fail.Wrap(wire.Error_IO, err)
}
