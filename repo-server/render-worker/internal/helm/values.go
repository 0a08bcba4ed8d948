package helm

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/manifest"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// mergeValues lays the user's values over each other, lowest first: files, the text of
// the source, then parameters. The chart's own come below, later. What is odd but
// readable is told.
func mergeValues(request *wire.HelmTemplate, read *reads.Set) (merged map[string]any, told []string, err error) {
	merged = map[string]any{}
	for _, path := range request.GetValuesFiles() {
		text, err := readAbsolute(path, read)
		if err != nil {
			return nil, nil, err
		}
		for _, key := range manifest.Repeated(text) {
			told = append(told, path+": "+key)
		}
		values, err := loader.LoadValues(bytes.NewReader(text))
		if err != nil {
			return nil, nil, fail.New(wire.Error_VALUES, fmt.Sprintf("failed to parse %s: %s", path, err)).
				At(path, manifest.Line(err))
		}
		merged = loader.MergeMaps(merged, values)
	}
	if text := request.GetValues(); text != "" {
		for _, key := range manifest.Repeated([]byte(text)) {
			told = append(told, "the values of the source: "+key)
		}
		values, err := loader.LoadValues(strings.NewReader(text))
		if err != nil {
			return nil, nil, fail.New(wire.Error_VALUES, fmt.Sprintf("failed to parse the values of the source: %s", err)).
				At("", manifest.Line(err))
		}
		merged = loader.MergeMaps(merged, values)
	}
	return merged, told, setParameters(merged, request.GetParameters(), read)
}

func setParameters(merged map[string]any, parameters []*wire.HelmParameter, read *reads.Set) error {
	for _, parameter := range ofKind(parameters, wire.HelmParameter_SET) {
		if err := strvals.ParseInto(assignment(parameter), merged); err != nil {
			return fail.New(wire.Error_VALUES, fmt.Sprintf("failed parsing --set data: %s", err))
		}
	}
	for _, parameter := range ofKind(parameters, wire.HelmParameter_SET_STRING) {
		if err := strvals.ParseIntoString(assignment(parameter), merged); err != nil {
			return fail.New(wire.Error_VALUES, fmt.Sprintf("failed parsing --set-string data: %s", err))
		}
	}
	for _, parameter := range ofKind(parameters, wire.HelmParameter_SET_FILE) {
		content := func(path []rune) (any, error) {
			text, err := readAbsolute(string(path), read)
			return string(text), err
		}
		if err := strvals.ParseIntoFile(assignment(parameter), merged, content); err != nil {
			return fail.New(wire.Error_VALUES, fmt.Sprintf("failed parsing --set-file data: %s", err))
		}
	}
	return nil
}

// ofKind keeps one parameter a name: the last.
func ofKind(parameters []*wire.HelmParameter, kind wire.HelmParameter_Kind) []*wire.HelmParameter {
	last := map[string]int{}
	for at, parameter := range parameters {
		if parameter.GetKind() == kind {
			last[parameter.GetName()] = at
		}
	}
	var kept []*wire.HelmParameter
	for at, parameter := range parameters {
		if parameter.GetKind() == kind && last[parameter.GetName()] == at {
			kept = append(kept, parameter)
		}
	}
	return kept
}

func assignment(parameter *wire.HelmParameter) string {
	return parameter.GetName() + "=" + escapeCommas(parameter.GetValue())
}

// escapeCommas makes one value of a text with commas. A text in braces is a list of
// Helm's syntax and stays; a comma that is escaped already stays too.
func escapeCommas(value string) string {
	if strings.HasPrefix(value, "{") && strings.HasSuffix(value, "}") {
		return value
	}
	var out strings.Builder
	previous := rune(0)
	for _, char := range value {
		if char == ',' && previous != '\\' {
			out.WriteRune('\\')
		}
		out.WriteRune(char)
		previous = char
	}
	return out.String()
}

func readAbsolute(path string, read *reads.Set) ([]byte, error) {
	if !filepath.IsAbs(path) {
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("values file %q is not absolute", path))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fail.Wrap(wire.Error_IO, err)
	}
	read.File(path)
	return text, nil
}
