package kustomize

import (
	"encoding/json"
	"fmt"
	"slices"

	"argosy/render-worker/internal/wire"
)

// images lists the images of all containers of all objects, sorted, repeated as often
// as they are used.
func images(objects []*wire.Object) ([]string, error) {
	var found []string
	for _, object := range objects {
		document := map[string]any{}
		if err := json.Unmarshal(object.GetJson(), &document); err != nil {
			return nil, err
		}
		found = appendImages(found, document)
	}
	slices.Sort(found)
	return found, nil
}

func appendImages(found []string, object map[string]any) []string {
	for name, value := range object {
		switch value := value.(type) {
		case map[string]any:
			found = appendImages(found, value)
		case []any:
			isContainers := name == "containers" || name == "initContainers"
			for _, item := range value {
				child, ok := item.(map[string]any)
				if !ok {
					continue
				}
				if !isContainers {
					found = appendImages(found, child)
				} else if image, ok := child["image"]; ok {
					found = append(found, fmt.Sprintf("%s", image))
				}
			}
		}
	}
	return found
}
