package main

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/diff/testdata"
	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/util/proto"

	gproto "google.golang.org/protobuf/proto"
)

const ourManager = "argocd-controller"

type comparison struct {
	Modified  bool            `json:"modified"`
	Live      json.RawMessage `json:"live"`
	Predicted json.RawMessage `json:"predicted"`
}

// verdict is the comparison of Argo CD: three-way, or by structured merge.
func verdict(line json.RawMessage) (any, error) {
	var request struct {
		Desired json.RawMessage `json:"desired"`
		Live    json.RawMessage `json:"live"`
		// Structured asks for the structured merge instead of the three-way one.
		Structured bool `json:"structured"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	return compared(request.Desired, request.Live,
		diff.WithStructuredMergeDiff(request.Structured), diff.WithManager(ourManager), diff.WithGVKParser(types()))
}

// serverSide is the comparison of Argo CD with the answer of a dry run.
func serverSide(line json.RawMessage) (any, error) {
	var request struct {
		Desired   json.RawMessage `json:"desired"`
		Live      json.RawMessage `json:"live"`
		Predicted json.RawMessage `json:"predicted"`
		// IncludeWebhooks counts what mutating webhooks changed.
		IncludeWebhooks bool `json:"include_webhooks"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	return compared(request.Desired, request.Live,
		diff.WithServerSideDiff(true), diff.WithManager(ourManager), diff.WithGVKParser(types()),
		diff.WithIgnoreMutationWebhook(!request.IncludeWebhooks),
		diff.WithServerSideDryRunner(recorded(request.Predicted)))
}

func compared(desired, live []byte, options ...diff.Option) (any, error) {
	config, err := parse(desired)
	if err != nil {
		return nil, err
	}
	current, err := parse(live)
	if err != nil {
		return nil, err
	}
	result, err := diff.Diff(config, current, options...)
	if err != nil {
		return nil, err
	}
	return comparison{result.Modified, result.NormalizedLive, result.PredictedLive}, nil
}

// recorded is a dry run whose answer is known.
type recorded []byte

func (answer recorded) Run(context.Context, *unstructured.Unstructured, string) (string, error) {
	return string(answer), nil
}

// types are those of the OpenAPI document that comes with the module.
var types = sync.OnceValue(func() *managedfields.GvkParser {
	document := &openapi_v2.Document{}
	if err := gproto.Unmarshal(testdata.OpenAPIV2Doc, document); err != nil {
		panic(err)
	}
	models, err := proto.NewOpenAPIData(document)
	if err != nil {
		panic(err)
	}
	parser, err := managedfields.NewGVKParser(models, false)
	if err != nil {
		panic(err)
	}
	return parser
})
