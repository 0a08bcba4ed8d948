package helm

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/manifest"
	"argosy/render-worker/internal/wire"
)

// Helm has no error types for a render, so the kind is read from the words that its
// source uses; the message is passed on as it is.
func renderFailure(err error, chartName string) error {
	message := err.Error()
	switch {
	case strings.HasPrefix(message, "values don't meet the specifications of the schema(s)"):
		return fail.New(wire.Error_SCHEMA, message).At("values.schema.json", 0)
	case strings.HasPrefix(message, "release name"):
		return fail.New(wire.Error_REQUEST, message)
	case strings.HasPrefix(message, "chart requires kubeVersion"),
		strings.HasPrefix(message, "chart dependencies processing failed"),
		strings.HasPrefix(message, "invalid chart apiVersion"):
		return fail.New(wire.Error_CHART, message).At("Chart.yaml", 0)
	}
	file, line := location(message, chartName)
	return fail.New(wire.Error_TEMPLATE, message).At(file, line)
}

func manifestFailure(err error) error {
	failure := fail.New(wire.Error_TEMPLATE, err.Error())
	var broken *manifest.Error
	if errors.As(err, &broken) {
		_, file, _ := strings.Cut(broken.Source, "/")
		return failure.At(file, broken.Line)
	}
	return failure
}

var (
	// "execution error at (web/templates/a.yaml:3:4): …", "parse error at (web/templates/a.yaml:3): …",
	// "template: web/templates/a.yaml:3:4: executing …", "web/templates/a.yaml:3:4\n  executing …"
	templatePlace = regexp.MustCompile(`([^\s()":]+/[^\s()":]+):(\d+)(?::\d+)?`)
	// "YAML parse error on web/templates/a.yaml: error converting YAML to JSON: yaml: line 5: …"
	yamlPlace = regexp.MustCompile(`YAML parse error on (\S+): (?s:.*?)(?:\bline (\d+)|$)`)
)

// location finds the place that a message names: the file relative to the chart.
func location(message, chartName string) (string, int) {
	for _, place := range []*regexp.Regexp{yamlPlace, templatePlace} {
		match := place.FindStringSubmatch(message)
		if match == nil {
			continue
		}
		line, _ := strconv.Atoi(match[2])
		return strings.TrimPrefix(match[1], chartName+"/"), line
	}
	return "", 0
}
