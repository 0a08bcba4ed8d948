package kustomize

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/wire"
)

// buildOptions are the options of `kustomize build` that a setting may carry.
type buildOptions struct {
	krusty *krusty.Options
	helm   bool
}

// parseOptions reads `kustomize.buildOptions` as the command would.
func parseOptions(texts []string) (*buildOptions, error) {
	flags := pflag.NewFlagSet("kustomize build", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	restrictor := flags.String("load-restrictor", types.LoadRestrictionsRootOnly.String(), "")
	reorder := flags.String("reorder", "none", "")
	managedBy := flags.Bool("enable-managedby-label", false, "")
	helm := flags.Bool("enable-helm", false, "")
	flags.String("helm-command", "", "")
	flags.String("helm-kube-version", "", "")
	flags.StringSlice("helm-api-versions", nil, "")
	flags.Bool("helm-debug", false, "")
	flags.Bool("as-current-user", false, "")
	flags.StringArrayP("env", "e", nil, "")
	flags.StringArray("mount", nil, "")
	flags.Bool("enable-alpha-plugins", false, "")
	flags.Bool("enable-exec", false, "")
	flags.Bool("enable-star", false, "")
	flags.Bool("network", false, "")
	flags.String("network-name", "", "")

	if err := flags.Parse(strings.Fields(strings.Join(texts, " "))); err != nil {
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("kustomize build options: %s", err))
	}
	if extra := flags.Args(); len(extra) > 0 {
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("kustomize build options: unexpected argument %q", extra[0]))
	}
	for _, name := range []string{"enable-alpha-plugins", "enable-exec", "enable-star", "network", "mount", "env"} {
		if flags.Changed(name) {
			return nil, fail.New(wire.Error_REFUSED, fmt.Sprintf("kustomize build option --%s is refused: the renderer runs no plugins and no functions", name))
		}
	}

	options := krusty.MakeDefaultOptions()
	switch *restrictor {
	case types.LoadRestrictionsRootOnly.String():
	case types.LoadRestrictionsNone.String():
		options.LoadRestrictions = types.LoadRestrictionsNone
	default:
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("illegal flag value --load-restrictor %s; legal values: %v", *restrictor,
			[]string{types.LoadRestrictionsRootOnly.String(), types.LoadRestrictionsNone.String()}))
	}
	switch *reorder {
	case "none":
		options.Reorder = krusty.ReorderOptionNone
	case "legacy":
		options.Reorder = krusty.ReorderOptionLegacy
	default:
		return nil, fail.New(wire.Error_REQUEST, fmt.Sprintf("illegal flag value --reorder %s; legal values: [legacy none]", *reorder))
	}
	if !flags.Changed("reorder") {
		options.Reorder = krusty.ReorderOptionUnspecified
	}
	options.AddManagedbyLabel = *managedBy
	return &buildOptions{krusty: options, helm: *helm}, nil
}
