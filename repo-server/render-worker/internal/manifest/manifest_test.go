package manifest

import (
	"errors"
	"testing"
)

func TestSplitKeepsOrderAndSources(t *testing.T) {
	documents, err := Split([]byte("---\n# Source: web/templates/a.yaml\na: 1\n---\nb: 2\n---\n# only a comment\n---\n# Licensed\n# Source: web/templates/c.yaml\n\nc: |\n  ---\n  text\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Document{
		{[]byte(`{"a":1}`), "web/templates/a.yaml"},
		{[]byte(`{"b":2}`), "web/templates/a.yaml"},
		{[]byte(`{"c":"---\ntext\n"}`), "web/templates/c.yaml"},
	}
	if len(documents) != len(want) {
		t.Fatalf("%d documents", len(documents))
	}
	for at, document := range documents {
		if string(document.JSON) != string(want[at].JSON) || document.Source != want[at].Source {
			t.Errorf("%d: %s of %s", at, document.JSON, document.Source)
		}
	}
}

func TestSplitNamesTheBrokenDocument(t *testing.T) {
	_, err := Split([]byte("---\n# Source: web/templates/a.yaml\na: 1\n---\n# Source: web/templates/b.yaml\nb: [\n"))
	var broken *Error
	if !errors.As(err, &broken) || broken.Source != "web/templates/b.yaml" || broken.Line == 0 {
		t.Fatalf("%v", err)
	}
}
