// Package kustomize builds kustomizations with Kustomize's own library, after the edits
// that Argo CD makes by command.
package kustomize

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	kubeversion "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"argosy/render-worker/internal/confine"
	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/manifest"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// Version is the Kustomize release whose behaviour this is (its api module is v0.21.1).
const Version = "5.8.1"

// Kustomizer builds. HelmCommand is the helm that `helmCharts` may run; empty refuses them.
type Kustomizer struct{ HelmCommand string }

// Build is `kustomize edit …` and `kustomize build`.
func (k Kustomizer) Build(request *wire.KustomizeBuild, read *reads.Set) (*wire.Rendered, error) {
	tree, err := newTree(request, read)
	if err != nil {
		return nil, err
	}
	rendered, err := k.build(request, tree)
	if err != nil {
		failure := fail.Of(err)
		failure.Message = confine.Redact(failure.Message, tree.root)
		failure.File = confine.Redact(failure.File, tree.root)
		return nil, &fail.Error{Wire: failure}
	}
	return rendered, nil
}

// Inspect builds and lists the images.
func (k Kustomizer) Inspect(request *wire.KustomizeInspect, read *reads.Set) (*wire.KustomizeDetails, error) {
	rendered, err := k.Build(request.GetBuild(), read)
	if err != nil {
		return nil, err
	}
	images, err := images(rendered.GetObjects())
	if err != nil {
		return nil, err
	}
	return &wire.KustomizeDetails{Images: images}, nil
}

func (k Kustomizer) build(request *wire.KustomizeBuild, tree *tree) (*wire.Rendered, error) {
	options, err := k.options(request)
	if err != nil {
		return nil, err
	}
	if err := applyEdits(tree, request); err != nil {
		return nil, orRemote(err, tree)
	}
	resources, err := run(options, tree)
	if err != nil {
		return nil, orRemote(buildFailure(err), tree)
	}
	rendered, err := render(request, resources)
	if err == nil && options.PluginConfig.HelmConfig.Enabled && tree.mayInflate {
		// The command reads the charts by itself, and what its templates call is not told.
		rendered.OpenInputs = append(rendered.OpenInputs, "charts that Kustomize inflates")
	}
	return rendered, err
}

func newTree(request *wire.KustomizeBuild, read *reads.Set) (*tree, error) {
	root := request.GetRoot()
	if !filepath.IsAbs(root) {
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("root %q is not absolute", root))
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, fail.Wrap(wire.Error_IO, err)
	}
	dir, err := filepath.EvalSymlinks(filepath.Join(root, request.GetPath()))
	if err != nil {
		return nil, fail.New(wire.Error_IO, confine.Redact(err.Error(), root))
	}
	if !confine.Inside(root, dir) {
		return nil, fail.New(wire.Error_IO, fmt.Sprintf("path %q leads out of the tree", request.GetPath()))
	}
	remotes := map[string]string{}
	var trees []string
	for entry, copy := range request.GetRemotes() {
		if !filepath.IsAbs(copy) {
			return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("copy %q of %s is not absolute", copy, entry))
		}
		// "tree//part": all of the tree is in reach, as it is for the command, which clones the repository.
		whole, part, _ := strings.Cut(copy, "//")
		whole, err := filepath.EvalSymlinks(whole)
		if err != nil {
			return nil, fail.Wrap(wire.Error_IO, err)
		}
		real, err := filepath.EvalSymlinks(filepath.Join(whole, part))
		if err != nil {
			return nil, fail.Wrap(wire.Error_IO, err)
		}
		if !confine.Inside(whole, real) {
			return nil, fail.New(wire.Error_IO, fmt.Sprintf("the copy of %s leads out of its tree", entry))
		}
		remotes[entry] = real
		trees = append(trees, whole)
	}
	return &tree{root: root, dir: dir, remotes: remotes, trees: trees, read: read}, nil
}

func (k Kustomizer) options(request *wire.KustomizeBuild) (*krusty.Options, error) {
	parsed, err := parseOptions(request.GetBuildOptions())
	if err != nil {
		return nil, err
	}
	if !parsed.helm {
		return parsed.krusty, nil
	}
	if k.HelmCommand == "" {
		return nil, fail.New(wire.Error_REFUSED, "kustomize build option --enable-helm is refused: this renderer runs no helm for Kustomize")
	}
	helm := &parsed.krusty.PluginConfig.HelmConfig
	helm.Enabled = true
	helm.Command = k.HelmCommand
	helm.ApiVersions = request.GetApiVersions()
	if text := request.GetKubeVersion(); text != "" {
		version, err := kubeversion.ParseGeneric(text)
		if err != nil {
			return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("could not parse kubernetes version %s: %s", text, err))
		}
		helm.KubeVersion = version.String()
	}
	return parsed.krusty, nil
}

// schema guards Kustomize's OpenAPI schema, which is one for the process: builds that use
// the built-in one share it, a build with a schema of its own is alone and cleans up.
var schema sync.RWMutex

func run(options *krusty.Options, tree *tree) ([]*resource.Resource, error) {
	resources, err := runShared(options, tree)
	if tree.wantsSchema {
		return runAlone(options, tree)
	}
	return resources, err
}

func runShared(options *krusty.Options, tree *tree) ([]*resource.Resource, error) {
	schema.RLock()
	defer schema.RUnlock()
	tree.shared = true
	defer func() { tree.shared = false }()
	return objects(options, tree)
}

func runAlone(options *krusty.Options, tree *tree) ([]*resource.Resource, error) {
	schema.Lock()
	defer schema.Unlock()
	defer openapi.ResetOpenAPI()
	return objects(options, tree)
}

func render(request *wire.KustomizeBuild, resources []*resource.Resource) (*wire.Rendered, error) {
	rendered := &wire.Rendered{}
	size := uint64(0)
	for _, built := range resources {
		// What the command prints is this, turned to YAML; reading that again would cost more than all else here.
		text, err := built.MarshalJSON()
		if err != nil {
			return nil, fail.Wrap(wire.Error_KUSTOMIZE, err)
		}
		object, err := manifest.Object(text)
		if err != nil {
			return nil, fail.Wrap(wire.Error_KUSTOMIZE, err)
		}
		if object == nil {
			continue
		}
		size += uint64(len(object))
		if limit := request.GetMaxOutputBytes(); limit > 0 && size > limit {
			return nil, fail.New(wire.Error_LIMIT, fmt.Sprintf("the kustomization builds to more than %d bytes", limit))
		}
		rendered.Objects = append(rendered.Objects, &wire.Object{Json: object})
	}
	return rendered, nil
}

// orRemote prefers to tell that something must be fetched: whatever else went wrong may
// be a consequence.
func orRemote(err error, tree *tree) error {
	if len(tree.unmet) == 0 {
		return err
	}
	failure := fail.New(wire.Error_REMOTE, fmt.Sprintf("the kustomization names what is not in the tree, and the renderer has no network: %s",
		strings.Join(tree.unmet, ", ")))
	failure.Wire.Remotes = tree.unmet
	return failure
}

// Words of Kustomize for what its configuration does not allow.
const (
	helmNotEnabled  = "must specify --enable-helm"
	pluginsDisabled = "external plugins disabled"
)

func buildFailure(err error) error {
	message := strings.TrimSpace(err.Error())
	if strings.Contains(message, helmNotEnabled) || strings.Contains(message, pluginsDisabled) {
		return fail.New(wire.Error_REFUSED, message)
	}
	file, line := place(message)
	return fail.New(wire.Error_KUSTOMIZE, message).At(file, line)
}

var (
	quotedFile = regexp.MustCompile(`['"]([^'"\s]+\.(?:ya?ml|json))['"]`)
	lineNumber = regexp.MustCompile(`\bline (\d+)`)
)

// place finds the last file that a message names in quotes, and a line if it names one.
func place(message string) (string, int) {
	file, line := "", 0
	if all := quotedFile.FindAllStringSubmatch(message, -1); len(all) > 0 {
		file = all[len(all)-1][1]
	}
	if match := lineNumber.FindStringSubmatch(message); match != nil {
		fmt.Sscanf(match[1], "%d", &line)
	}
	return file, line
}
