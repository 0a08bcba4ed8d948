// Package helm renders and describes charts with Helm's own library, the way Argo CD
// calls the command.
package helm

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"

	kubeversion "k8s.io/apimachinery/pkg/util/version"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/manifest"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// Version is the Helm release whose behaviour this is. Charts see it as
// `.Capabilities.HelmVersion`.
const Version = "4.2.4"

func init() {
	// The library knows only "v4.2" of itself; the command is told the rest when it is linked.
	common.DefaultCapabilities.HelmVersion.Version = "v" + Version
}

// DefaultKubeVersion is what charts see if the caller names no cluster.
func DefaultKubeVersion() string { return common.DefaultCapabilities.KubeVersion.Version }

// Template is `helm template`.
func Template(request *wire.HelmTemplate, read *reads.Set) (*wire.Rendered, error) {
	place, err := locate(request.GetChartDir(), request.GetTreeRoot())
	if err != nil {
		return nil, err
	}
	rendered, err := renderChart(request, place, read)
	if err != nil {
		failure := fail.Of(err)
		failure.Message = confine.Redact(failure.Message, place.root)
		failure.File = confine.Redact(failure.File, place.root)
		return nil, &fail.Error{Wire: failure}
	}
	return rendered, nil
}

func renderChart(request *wire.HelmTemplate, place place, read *reads.Set) (*wire.Rendered, error) {
	loaded, err := load(place, request.GetDependencyCharts(), read)
	if err != nil {
		return nil, err
	}
	values, told, err := mergeValues(request, read)
	if err != nil {
		return nil, err
	}
	install, opened, err := newInstall(request)
	if err != nil {
		return nil, err
	}
	if request.GetApiVersionsWhole() {
		defer withoutDefaults()()
	}
	rel, err := run(install, loaded, values)
	if err != nil {
		return nil, err
	}
	documents, odd, err := manifest.Split(stream(rel, request.GetSkipTests()))
	if err != nil {
		return nil, manifestFailure(err)
	}

	for _, key := range manifest.Repeated([]byte(ownValues(loaded))) {
		told = append(told, "values.yaml of the chart: "+key)
	}
	rendered := &wire.Rendered{OpenInputs: opened.names(), Warnings: append(told, odd...)}
	size := uint64(0)
	for _, document := range documents {
		size += uint64(len(document.JSON))
		if limit := request.GetMaxOutputBytes(); limit > 0 && size > limit {
			return nil, fail.New(wire.Error_LIMIT, fmt.Sprintf("the chart renders to more than %d bytes", limit))
		}
		rendered.Objects = append(rendered.Objects, &wire.Object{Json: document.JSON, Source: document.Source})
	}
	return rendered, nil
}

func newInstall(request *wire.HelmTemplate) (*action.Install, *openInputs, error) {
	opened := &openInputs{}
	config := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	config.CustomTemplateFuncs = opened.functions()

	install := action.NewInstall(config)
	install.DryRunStrategy = action.DryRunClient
	install.WaitStrategy = kube.HookOnlyStrategy
	install.Replace = true
	install.IncludeCRDs = !request.GetSkipCrds()
	install.SkipSchemaValidation = request.GetSkipSchemaValidation()
	install.APIVersions = common.VersionSet(request.GetApiVersions())
	install.ReleaseName = request.GetReleaseName()
	install.Namespace = request.GetNamespace()
	if install.Namespace == "" {
		install.Namespace = "default"
	}
	if strings.Contains(install.ReleaseName, "{{") {
		return nil, nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("release name %q is a template", install.ReleaseName))
	}
	if text := request.GetKubeVersion(); text != "" {
		version, err := parseKubeVersion(text)
		if err != nil {
			return nil, nil, fail.New(wire.Error_REQUEST, err.Error())
		}
		install.KubeVersion = version
	}
	return install, opened, nil
}

// parseKubeVersion keeps major.minor.patch of what a cluster reports, as Argo CD does
// before it calls the command.
func parseKubeVersion(text string) (*common.KubeVersion, error) {
	cleaned, err := kubeversion.ParseGeneric(text)
	if err != nil {
		return nil, fmt.Errorf("could not parse kubernetes version %s: %w", text, err)
	}
	version, err := common.ParseKubeVersion(cleaned.String())
	if err != nil {
		return nil, fmt.Errorf("invalid kube version '%s': %w", text, err)
	}
	return version, nil
}

// withoutDefaults takes Helm's own idea of what clusters serve away until the returned function is called: without a
// cluster, the library adds it to whatever it is told. A worker runs one call at a time.
func withoutDefaults() func() {
	defaults := common.DefaultCapabilities
	none := *defaults
	none.APIVersions = nil
	common.DefaultCapabilities = &none
	return func() { common.DefaultCapabilities = defaults }
}

func run(install *action.Install, loaded *chart.Chart, values map[string]any) (*release.Release, error) {
	result, err := install.RunWithContext(context.Background(), loaded, values)
	if err != nil {
		return nil, renderFailure(err, loaded.Name())
	}
	rel, ok := result.(*release.Release)
	if !ok {
		return nil, fail.New(wire.Error_INTERNAL, fmt.Sprintf("helm returned a release of type %T", result))
	}
	return rel, nil
}

// stream is what the command prints: the manifest, then the hooks.
func stream(rel *release.Release, skipTests bool) []byte {
	var out bytes.Buffer
	out.WriteString(strings.TrimSpace(rel.Manifest))
	out.WriteByte('\n')
	for _, hook := range rel.Hooks {
		if skipTests && slices.Contains(hook.Events, release.HookTest) {
			continue
		}
		fmt.Fprintf(&out, "---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	return out.Bytes()
}

// place is where a chart lies: both clean, absolute, without links.
type place struct{ root, chart string }

func locate(chartDir, treeRoot string) (place, error) {
	if !filepath.IsAbs(chartDir) {
		return place{}, fail.New(wire.Error_REQUEST, fmt.Sprintf("chart_dir %q is not absolute", chartDir))
	}
	chartDir, err := filepath.EvalSymlinks(chartDir)
	if err != nil {
		return place{}, fail.Wrap(wire.Error_IO, err)
	}
	if treeRoot == "" {
		return place{root: chartDir, chart: chartDir}, nil
	}
	if !filepath.IsAbs(treeRoot) {
		return place{}, fail.New(wire.Error_REQUEST, fmt.Sprintf("tree_root %q is not absolute", treeRoot))
	}
	treeRoot, err = filepath.EvalSymlinks(treeRoot)
	if err != nil {
		return place{}, fail.Wrap(wire.Error_IO, err)
	}
	if !confine.Inside(treeRoot, chartDir) {
		return place{}, fail.New(wire.Error_IO, "the chart lies outside its tree")
	}
	return place{root: treeRoot, chart: chartDir}, nil
}
