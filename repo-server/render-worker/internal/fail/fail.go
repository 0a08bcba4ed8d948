// Package fail is the error of a call: a kind for the host, the tool's own message
// for the person.
package fail

import (
	"errors"

	"argosy/render-worker/internal/wire"
)

// Error carries the reply's error. Everything that a renderer returns is one, or is
// turned into one of kind INTERNAL at the edge.
type Error struct{ Wire *wire.Error }

func (e *Error) Error() string { return e.Wire.GetMessage() }

// New makes an error of a kind with a message.
func New(kind wire.Error_Kind, message string) *Error {
	return &Error{Wire: &wire.Error{Kind: kind, Message: message}}
}

// Wrap gives an error a kind, if it has none yet.
func Wrap(kind wire.Error_Kind, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	return New(kind, err.Error())
}

// At adds the place in a file.
func (e *Error) At(file string, line int) *Error {
	e.Wire.File = file
	if line > 0 {
		e.Wire.Line = uint32(line)
	}
	return e
}

// Of is the wire form of any error.
func Of(err error) *wire.Error {
	var known *Error
	if errors.As(err, &known) {
		return known.Wire
	}
	return &wire.Error{Kind: wire.Error_INTERNAL, Message: err.Error()}
}
