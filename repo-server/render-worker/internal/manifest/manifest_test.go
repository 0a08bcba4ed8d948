package manifest

import (
	"errors"
	"testing"
)

func TestSplitKeepsOrderAndSources(t *testing.T) {
	documents, _, err := Split([]byte("---\n# Source: web/templates/a.yaml\na: 1\n---\nb: 2\n---\n# only a comment\n---\n# Licensed\n# Source: web/templates/c.yaml\n\nc: |\n  ---\n  text\n"))
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
	_, _, err := Split([]byte("---\n# Source: web/templates/a.yaml\na: 1\n---\n# Source: web/templates/b.yaml\nb: [\n"))
	var broken *Error
	if !errors.As(err, &broken) || broken.Source != "web/templates/b.yaml" || broken.Line == 0 {
		t.Fatalf("%v", err)
	}
}

func TestSplitTellsKeysThatStandTwice(t *testing.T) {
	documents, told, err := Split([]byte("---\n# Source: web/templates/a.yaml\na: 1\nb: 2\na: 3\n---\n# Source: web/templates/b.yaml\nx: &x {a: 1}\ny:\n  <<: *x\n  a: 2\n"))
	if err != nil || len(documents) != 2 || string(documents[0].JSON) != `{"a":3,"b":2}` {
		t.Fatalf("%s %v", documents, err)
	}
	want := `web/templates/a.yaml, document 1: line 5: the key "a" stands here for the second time; the last one counts`
	if len(told) != 1 || told[0] != want {
		t.Fatalf("%q", told)
	}
}
