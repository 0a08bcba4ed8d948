package kustomize

import (
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sigs.k8s.io/kustomize/api/provider"
	"sigs.k8s.io/kustomize/kustomize/v5/commands/edit"
	"sigs.k8s.io/yaml"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/wire"
)

// applyEdits runs the commands that Argo CD runs before a build, in its order, on the
// tree's overlay.
func applyEdits(tree *tree, request *wire.KustomizeBuild) error {
	edits := editsBefore(request)
	if len(edits) > 0 || len(request.GetComponents()) > 0 {
		if err := flattenKustomization(tree); err != nil {
			return err
		}
	}
	for _, arguments := range edits {
		if err := runEdit(tree, arguments); err != nil {
			return err
		}
	}
	if err := appendPatches(tree, request.GetPatches()); err != nil {
		return err
	}
	return addComponents(tree, request)
}

func flattenKustomization(tree *tree) error {
	file := tree.kustomizationFile()
	if file == "" {
		return nil // The first command says so.
	}
	content, err := tree.content(file)
	if err != nil {
		return fail.Wrap(wire.Error_IO, err)
	}
	return tree.WriteFile(file, content)
}

func editsBefore(request *wire.KustomizeBuild) [][]string {
	var edits [][]string
	if prefix := request.GetNamePrefix(); prefix != "" {
		edits = append(edits, []string{"set", "nameprefix", "--", prefix})
	}
	if suffix := request.GetNameSuffix(); suffix != "" {
		edits = append(edits, []string{"set", "namesuffix", "--", suffix})
	}
	if images := request.GetImages(); len(images) > 0 {
		edits = append(edits, append([]string{"set", "image"}, images...))
	}
	if replicas := request.GetReplicas(); len(replicas) > 0 {
		arguments := []string{"set", "replicas"}
		for _, replica := range replicas {
			arguments = append(arguments, fmt.Sprintf("%s=%d", replica.GetName(), replica.GetCount()))
		}
		edits = append(edits, arguments)
	}
	if labels := request.GetCommonLabels(); len(labels) > 0 {
		arguments := []string{"add", "label"}
		if request.GetForceCommonLabels() {
			arguments = append(arguments, "--force")
		}
		if request.GetLabelWithoutSelector() {
			arguments = append(arguments, "--without-selector")
		}
		if request.GetLabelIncludeTemplates() {
			arguments = append(arguments, "--include-templates")
		}
		edits = append(edits, append(arguments, pairs(labels)...))
	}
	if annotations := request.GetCommonAnnotations(); len(annotations) > 0 {
		arguments := []string{"add", "annotation"}
		if request.GetForceCommonAnnotations() {
			arguments = append(arguments, "--force")
		}
		edits = append(edits, append(arguments, pairs(annotations)...))
	}
	if namespace := request.GetNamespace(); namespace != "" {
		edits = append(edits, []string{"set", "namespace", "--", namespace})
	}
	return edits
}

func pairs(values map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		out = append(out, name+":"+values[name])
	}
	return out
}

// editing: the commands keep flags in package variables.
var editing sync.Mutex

func runEdit(tree *tree, arguments []string) error {
	editing.Lock()
	defer editing.Unlock()
	factory := provider.NewDefaultDepProvider()
	command := edit.NewCmdEdit(tree, factory.GetFieldValidator(), factory.GetResourceFactory(), io.Discard)
	command.SilenceErrors = true
	command.SilenceUsage = true
	command.SetArgs(arguments)
	command.SetOut(io.Discard)
	command.SetErr(io.Discard)
	if err := command.Execute(); err != nil {
		return fail.New(wire.Error_KUSTOMIZE, strings.TrimSpace(err.Error()))
	}
	return nil
}

// appendPatches adds to `patches` of the kustomization, which no command can.
func appendPatches(tree *tree, patches []*wire.KustomizePatch) error {
	if len(patches) == 0 {
		return nil
	}
	file := tree.kustomizationFile()
	if file == "" {
		return fail.New(wire.Error_KUSTOMIZE, "kustomization file not found in the path")
	}
	content, err := tree.content(file)
	if err != nil {
		return fail.New(wire.Error_IO, fmt.Sprintf("failed to load kustomization.yaml: %s", err))
	}
	whole := map[string]any{}
	if err := yaml.Unmarshal(content, &whole); err != nil {
		return fail.New(wire.Error_KUSTOMIZE, fmt.Sprintf("failed to unmarshal kustomization.yaml: %s", err))
	}
	list, ok := whole["patches"].([]any)
	if !ok && whole["patches"] != nil {
		return fail.New(wire.Error_KUSTOMIZE, fmt.Sprintf("expected 'patches' field in kustomization.yaml to be []any, but got %T", whole["patches"]))
	}
	for _, patch := range patches {
		list = append(list, patchEntry(patch))
	}
	whole["patches"] = list
	content, err = yaml.Marshal(whole)
	if err != nil {
		return err
	}
	return tree.WriteFile(file, content)
}

func patchEntry(patch *wire.KustomizePatch) map[string]any {
	entry := map[string]any{}
	put(entry, "path", patch.GetPath())
	put(entry, "patch", patch.GetPatch())
	if target := patch.GetTarget(); target != nil {
		selector := map[string]any{}
		put(selector, "group", target.GetGroup())
		put(selector, "version", target.GetVersion())
		put(selector, "kind", target.GetKind())
		put(selector, "name", target.GetName())
		put(selector, "namespace", target.GetNamespace())
		put(selector, "annotationSelector", target.GetAnnotationSelector())
		put(selector, "labelSelector", target.GetLabelSelector())
		entry["target"] = selector
	}
	if options := patch.GetOptions(); len(options) > 0 {
		set := map[string]any{}
		for name, value := range options {
			set[name] = value
		}
		entry["options"] = set
	}
	return entry
}

func put(into map[string]any, name, value string) {
	if value != "" {
		into[name] = value
	}
}

func addComponents(tree *tree, request *wire.KustomizeBuild) error {
	var found []string
	for _, component := range request.GetComponents() {
		local := component
		if copy, ok := tree.remotes[component]; ok && looksRemote(component) {
			rel, err := filepath.Rel(tree.dir, copy)
			if err != nil {
				return fail.Wrap(wire.Error_IO, err)
			}
			local = rel
		} else if looksRemote(component) && !tree.Exists(component) {
			tree.unmet = append(tree.unmet, component)
			continue
		}
		if request.GetIgnoreMissingComponents() && !tree.Exists(local) {
			continue
		}
		found = append(found, local)
	}
	if len(found) == 0 {
		return nil
	}
	return runEdit(tree, append([]string{"add", "component"}, found...))
}
