package main

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// strategic does what `kubectl apply` does on the client: the three-way strategic merge patch. It also has the server's half of that
// library read the patch that somebody else made for the same three documents.
func strategic(line json.RawMessage) (any, error) {
	var request struct {
		Original json.RawMessage `json:"original"`
		Modified json.RawMessage `json:"modified"`
		Current  json.RawMessage `json:"current"`
		// Patch is the other one's.
		Patch json.RawMessage `json:"patch"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	object, err := typedObject(request.Modified)
	if err != nil {
		return nil, err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(object)
	if err != nil {
		return nil, err
	}
	original := []byte(request.Original)
	if string(original) == "null" {
		original = nil
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, request.Modified, request.Current, meta, true)
	if err != nil {
		return nil, fmt.Errorf("make the patch: %w", err)
	}
	type answer struct {
		Patch json.RawMessage `json:"patch"`
		// Kept is what the API server has after the library's patch, KeptOfOther after the other one's.
		Kept        map[string]any `json:"kept"`
		KeptOfOther map[string]any `json:"kept_of_other"`
		// Problem is why the other patch could not be read.
		Problem string `json:"problem,omitempty"`
	}
	given := answer{Patch: patch}
	if given.Kept, err = patched(request.Current, patch); err != nil {
		return nil, fmt.Errorf("apply the patch of the library: %w", err)
	}
	if given.KeptOfOther, err = patched(request.Current, request.Patch); err != nil {
		given.Problem = err.Error()
	}
	return given, nil
}

// patched is the object after the patch, as an API server would keep it.
func patched(current, patch []byte) (map[string]any, error) {
	object, err := typedObject(current)
	if err != nil {
		return nil, err
	}
	merged, err := strategicpatch.StrategicMergePatch(current, patch, object)
	if err != nil {
		return nil, err
	}
	return stored(merged, true)
}
