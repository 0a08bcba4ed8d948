package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// step is one write by one manager.
type step struct {
	Manager string `json:"manager"`
	// Update is a plain write of the whole object; otherwise it is a server-side apply.
	Update bool            `json:"update"`
	Object json.RawMessage `json:"object"`
}

// apply lets the field manager of the API server do one write after the other, and answers the object (with its managedFields) before and
// after the last of them.
func apply(line json.RawMessage) (any, error) {
	var request struct {
		Steps []step `json:"steps"`
		// Schema is the OpenAPI v3 schema of a custom resource; null for built-in kinds.
		Schema *spec.Schema `json:"schema"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	if len(request.Steps) == 0 {
		return nil, fmt.Errorf("no steps")
	}
	last, err := parse(request.Steps[len(request.Steps)-1].Object)
	if err != nil {
		return nil, err
	}
	gvk := last.GroupVersionKind()
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	if request.Schema != nil {
		request.Schema.AddExtension("x-kubernetes-group-version-kind", []any{
			map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind},
		})
		converter, err = managedfields.NewTypeConverter(map[string]*spec.Schema{"custom": request.Schema}, false)
		if err != nil {
			return nil, err
		}
	}
	manager := managedfieldstest.NewFakeFieldManager(converter, gvk)
	live := &unstructured.Unstructured{Object: map[string]any{}}
	live.SetGroupVersionKind(gvk)
	before := live
	for _, step := range request.Steps {
		object, err := parse(step.Object)
		if err != nil {
			return nil, err
		}
		before = live.DeepCopy()
		if step.Update {
			// A plain write carries the managedFields along.
			object.SetManagedFields(live.GetManagedFields())
			result, err := manager.Update(live, object, step.Manager)
			if err != nil {
				return nil, fmt.Errorf("update by %s: %w", step.Manager, err)
			}
			live = result.(*unstructured.Unstructured)
			continue
		}
		result, err := manager.Apply(live, object, step.Manager, true)
		if err != nil {
			return nil, fmt.Errorf("apply by %s: %w", step.Manager, err)
		}
		live = result.(*unstructured.Unstructured)
	}
	return map[string]any{"before": before.Object, "after": live.Object}, nil
}
