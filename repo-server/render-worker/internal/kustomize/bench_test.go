package kustomize

import (
	"testing"

	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

func BenchmarkOverlay(b *testing.B) { benchmark(b, &wire.KustomizeBuild{Path: "prod"}) }
func BenchmarkOverlayEdits(b *testing.B) {
	benchmark(b, &wire.KustomizeBuild{
		Path: "prod", NamePrefix: "p-", Namespace: "shop", Images: []string{"nginx:2.0"},
		CommonLabels: map[string]string{"team": "a"}, CommonAnnotations: map[string]string{"why": "x"},
	})
}

func benchmark(b *testing.B, request *wire.KustomizeBuild) {
	request.Root = b.TempDir()
	testtree.Into(b, request.GetRoot(), app)
	for b.Loop() {
		if _, err := (Kustomizer{}).Build(request, &reads.Set{}); err != nil {
			b.Fatal(err)
		}
	}
}
