package main

import (
	"encoding/json"
	"fmt"

	gescheme "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube/scheme"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// store answers what an API server would keep of an object: decoded into its Go type, defaults filled in, encoded. Fields that are not of
// the type are lost, so that the generator of objects can see what it made of nothing.
func store(line json.RawMessage) (any, error) {
	var request struct {
		Object json.RawMessage `json:"object"`
		// Defaults says whether to fill defaults in.
		Defaults bool `json:"defaults"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	return stored(request.Object, request.Defaults)
}

func stored(text []byte, defaults bool) (map[string]any, error) {
	object, err := typedObject(text)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, object); err != nil {
		return nil, fmt.Errorf("decode into the Go type: %w", err)
	}
	if secret, is := object.(*corev1.Secret); is {
		// The API server never keeps them as they came.
		for name, text := range secret.StringData {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[name] = []byte(text)
		}
		secret.StringData = nil
	}
	if defaults {
		gescheme.Scheme.Default(object)
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(encoded); err != nil {
		return nil, err
	}
	return read.Object, nil
}

// typedObject is an empty value of the Go type that the kind of the object has.
func typedObject(text []byte) (runtime.Object, error) {
	read, err := parse(text)
	if err != nil {
		return nil, err
	}
	return scheme.Scheme.New(read.GroupVersionKind())
}

func parse(text []byte) (*unstructured.Unstructured, error) {
	read := &unstructured.Unstructured{}
	if err := read.UnmarshalJSON(text); err != nil {
		return nil, err
	}
	return read, nil
}
