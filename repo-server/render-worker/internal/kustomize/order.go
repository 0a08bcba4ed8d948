package kustomize

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"
)

// Kustomize sorts objects unless it is told otherwise. To do so it adds them to an empty list
// one by one, and reads what each that is there already is called for each that comes: of a
// build of 4,000 objects, a third of the time. The same order is made here of names read once.

// objects builds, and sorts as `kustomize build` does.
func objects(options *krusty.Options, tree *tree) ([]*resource.Resource, error) {
	sorts := options.Reorder != krusty.ReorderOptionNone && !tree.hasOrder()
	if sorts {
		unsorted := *options
		unsorted.Reorder = krusty.ReorderOptionNone
		options = &unsorted
	}
	built, err := krusty.MakeKustomizer(options).Run(tree, tree.dir)
	if err != nil {
		return nil, err
	}
	if sorts {
		return sorted(built.Resources())
	}
	return built.Resources(), nil
}

// hasOrder tells whether the kustomization itself says how to sort.
func (t *tree) hasOrder() bool {
	content, err := t.content(t.kustomizationFile())
	if err != nil {
		return false
	}
	var known struct {
		SortOptions *types.SortOptions `json:"sortOptions"`
	}
	// What cannot be read is left to Kustomize, which has the better message.
	return yaml.Unmarshal(content, &known) != nil || known.SortOptions != nil
}

// first and last are Kustomize's lists of kinds; all others are between them.
var (
	first = []string{
		"Namespace", "ResourceQuota", "StorageClass", "CustomResourceDefinition", "ServiceAccount", "PodSecurityPolicy", "Role",
		"ClusterRole", "RoleBinding", "ClusterRoleBinding", "ConfigMap", "Secret", "Endpoints", "Service", "LimitRange",
		"PriorityClass", "PersistentVolume", "PersistentVolumeClaim", "Deployment", "StatefulSet", "CronJob", "PodDisruptionBudget",
	}
	last = []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}
)

type named struct {
	resource  *resource.Resource
	id        resid.ResId
	rank      int
	kind, all string
}

// sorted is the order that Kustomize calls "legacy". Two objects with one name are an error.
func sorted(resources []*resource.Resource) ([]*resource.Resource, error) {
	list := make([]named, len(resources))
	for at, one := range resources {
		id := one.CurId()
		list[at] = named{
			resource: one, id: id, rank: rank(id.Kind),
			kind: joined("_", id.Group, "~G", id.Version, "~V", id.Kind, "~K"),
			all:  joined("|", id.Gvk.String(), "", id.Namespace, "~X", id.Name, "~N"),
		}
	}
	slices.SortFunc(list, compare)
	seen := make(map[resid.ResId]struct{}, len(list))
	for at, one := range list {
		id := resid.ResId{
			Gvk:       resid.Gvk{Group: one.id.Group, Version: one.id.Version, Kind: one.id.Kind},
			Name:      one.id.Name,
			Namespace: one.id.EffectiveNamespace(),
		}
		if _, there := seen[id]; there {
			return nil, fmt.Errorf("SortOrderTransformer: Failed to append to resources: may not add resource with an already registered id: %s", one.id)
		}
		seen[id] = struct{}{}
		resources[at] = one.resource
	}
	return resources, nil
}

func compare(a, b named) int {
	if a.id.Gvk.Equals(b.id.Gvk) {
		return strings.Compare(a.all, b.all)
	}
	if a.rank != b.rank {
		return a.rank - b.rank
	}
	if a.id.Kind == types.NamespaceKind && b.id.Kind == types.NamespaceKind && (a.id.Group == "" || b.id.Group == "") {
		return strings.Compare(b.kind, a.kind)
	}
	return strings.Compare(a.kind, b.kind)
}

func rank(kind string) int {
	if at := slices.Index(first, kind); at >= 0 {
		return at - len(first)
	}
	return 1 + slices.Index(last, kind)
}

// joined puts texts together; each is followed by what stands for it if it is empty.
func joined(separator string, texts ...string) string {
	var parts []string
	for at := 0; at < len(texts); at += 2 {
		part := texts[at]
		if part == "" {
			part = texts[at+1]
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, separator)
}
