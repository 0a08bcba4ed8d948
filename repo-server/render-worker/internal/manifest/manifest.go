// Package manifest turns what a tool prints into JSON objects, in the way Argo CD
// reads it: split as kubectl splits, converted by sigs.k8s.io/yaml.
package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// Document is one object of a stream.
type Document struct {
	JSON   []byte
	Source string
}

// Error tells which document of a stream cannot be read.
type Error struct {
	// Source is the template that printed the document, if the stream says so.
	Source string
	// Line counts from 1 inside the document; 0 = not known.
	Line int
	// Err is the parser's own message.
	Err error
}

func (e *Error) Error() string { return "failed to unmarshal manifest: " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// sourceMark is the comment that Helm writes above the first document of a template.
const sourceMark = "# Source: "

// Split reads a YAML stream. Empty documents are left out. A document without a
// source mark of its own belongs to the template of the one before it. What is odd but
// readable is told beside the documents.
func Split(stream []byte) ([]Document, []string, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	var documents []Document
	var told []string
	source := ""
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, told, nil
		}
		if err != nil {
			return nil, nil, &Error{Source: source, Err: err}
		}
		if named := sourceOf(text); named != "" {
			source = named
		}
		object, repeated, err := convert(text)
		if err != nil {
			return nil, nil, &Error{Source: source, Line: lineOf(err), Err: err}
		}
		for _, key := range repeated {
			told = append(told, fmt.Sprintf("%s, document %d: %s", source, len(documents)+1, key))
		}
		if object == nil {
			continue
		}
		documents = append(documents, Document{JSON: object, Source: source})
	}
}

// Object is JSON that must be an object; nil if it is empty.
func Object(object []byte) ([]byte, error) {
	object = bytes.TrimSpace(object)
	if len(object) == 0 || bytes.Equal(object, []byte("null")) {
		return nil, nil
	}
	if object[0] != '{' {
		return nil, fmt.Errorf("a manifest must be an object, not %s", excerpt(object))
	}
	return object, nil
}

func excerpt(text []byte) string {
	const most = 60
	if len(text) > most {
		return string(text[:most]) + "…"
	}
	return string(text)
}

// sourceOf looks for the mark among the comments at the head of a document. The first
// document of a stream still has its separator.
func sourceOf(text []byte) string {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		switch {
		case bytes.HasPrefix(line, []byte(sourceMark)):
			return string(bytes.TrimSpace(line[len(sourceMark):]))
		case len(line) == 0, line[0] == '#', bytes.HasPrefix(line, []byte("---")):
		default:
			return ""
		}
	}
	return ""
}

var yamlLine = regexp.MustCompile(`\bline (\d+)`)

func lineOf(err error) int {
	match := yamlLine.FindStringSubmatch(err.Error())
	if match == nil {
		return 0
	}
	line, _ := strconv.Atoi(match[1])
	return line
}

// Line finds the line that a YAML parser names in its message; 0 if it names none.
func Line(err error) int { return lineOf(err) }
