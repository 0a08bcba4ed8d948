package main

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// quantities prints each text as a quantity (null if it is none) and orders each next to its neighbour.
func quantities(line json.RawMessage) (any, error) {
	var request struct {
		Texts []string `json:"texts"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	type one struct {
		// Canonical is how the quantity is printed.
		Canonical *string `json:"canonical"`
		// Order is -1, 0 or 1: this one against the next.
		Order *int `json:"order"`
		// Value and Milli are the rounded numbers.
		Value int64 `json:"value"`
		Milli int64 `json:"milli"`
	}
	parsed := make([]*resource.Quantity, len(request.Texts))
	answers := make([]one, len(request.Texts))
	for i, text := range request.Texts {
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			continue
		}
		parsed[i] = &quantity
		copied := quantity.DeepCopy()
		printed := copied.String()
		answers[i] = one{Canonical: &printed, Value: quantity.Value(), Milli: quantity.MilliValue()}
	}
	for i := range parsed {
		if i+1 < len(parsed) && parsed[i] != nil && parsed[i+1] != nil {
			order := parsed[i].Cmp(*parsed[i+1])
			answers[i].Order = &order
		}
	}
	return answers, nil
}

// yamlTexts reads each text as sigs.k8s.io/yaml does; null where it refuses.
func yamlTexts(line json.RawMessage) (any, error) {
	var request struct {
		Texts []string `json:"texts"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	type one struct {
		JSON  json.RawMessage `json:"json,omitempty"`
		Error string          `json:"error,omitempty"`
	}
	answers := make([]one, len(request.Texts))
	for i, text := range request.Texts {
		read, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			answers[i].Error = err.Error()
		} else {
			answers[i].JSON = read
		}
	}
	return answers, nil
}
