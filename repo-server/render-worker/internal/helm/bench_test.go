package helm

import (
	"testing"

	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

func BenchmarkSmallChart(b *testing.B) {
	dir := b.TempDir()
	testtree.Into(b, dir, extras)
	for b.Loop() {
		if _, err := Template(&wire.HelmTemplate{ChartDir: dir, ReleaseName: "rel"}, &reads.Set{}); err != nil {
			b.Fatal(err)
		}
	}
}
