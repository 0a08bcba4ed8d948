// Package reads records what a render was made from.
package reads

import (
	"maps"
	"slices"
	"sync"

	"argosy/render-worker/internal/wire"
)

// Set collects absolute paths. Safe for concurrent use; the zero value is empty.
type Set struct {
	lock   sync.Mutex
	files  map[string]struct{}
	trees  map[string]struct{}
	absent map[string]struct{}
}

// File notes that a file's content was read.
func (s *Set) File(path string) { s.add(&s.files, path) }

// Tree notes that a directory was read with all below it.
func (s *Set) Tree(path string) { s.add(&s.trees, path) }

// Absent notes that a path was looked for and not found.
func (s *Set) Absent(path string) { s.add(&s.absent, path) }

func (s *Set) add(to *map[string]struct{}, path string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if *to == nil {
		*to = map[string]struct{}{}
	}
	(*to)[path] = struct{}{}
}

// Files are the files read so far, sorted.
func (s *Set) Files() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Sorted(maps.Keys(s.files))
}

// Wire is the form of the reply.
func (s *Set) Wire() *wire.ReadSet {
	s.lock.Lock()
	defer s.lock.Unlock()
	return &wire.ReadSet{
		Files:  slices.Sorted(maps.Keys(s.files)),
		Trees:  slices.Sorted(maps.Keys(s.trees)),
		Absent: slices.Sorted(maps.Keys(s.absent)),
	}
}
