// Package serve reads requests from a stream, runs them side by side and writes the
// replies. It is all that knows the framing.
package serve

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"argosy/render-worker/internal/fail"
	"argosy/render-worker/internal/helm"
	"argosy/render-worker/internal/kustomize"
	"argosy/render-worker/internal/reads"
	"argosy/render-worker/internal/wire"
)

// Protocol is the revision that PROTOCOL.md describes.
const Protocol = 1

// RequestBytesMax bounds one request: values of a chart are at most a few MiB, the rest
// is paths and names.
const RequestBytesMax = 64 << 20

// waitingMax bounds the requests that wait for a free slot; beyond it reading stops and
// the host's pipe fills.
const waitingMax = 1024

// Server runs calls.
type Server struct {
	// Concurrency is how many calls run at once.
	Concurrency int
	Kustomize   kustomize.Kustomizer
	// Versions answers the version query.
	Versions *wire.Versions
}

// Serve works until the stream of requests ends, and then until all are answered. A
// frame that cannot be read is an error: the stream has no way back into step.
func (s *Server) Serve(in io.Reader, out io.Writer) error {
	replies := &replies{out: bufio.NewWriterSize(out, 1<<16)}
	waiting := make(chan *wire.Request, waitingMax)
	var running sync.WaitGroup
	for range max(s.Concurrency, 1) {
		running.Go(func() {
			for request := range waiting {
				replies.send(s.answer(request))
			}
		})
	}
	err := readAll(in, waiting)
	close(waiting)
	running.Wait()
	return errors.Join(err, replies.err)
}

func readAll(in io.Reader, into chan<- *wire.Request) error {
	reader := bufio.NewReaderSize(in, 1<<16)
	for {
		request := &wire.Request{}
		err := protodelim.UnmarshalOptions{MaxSize: RequestBytesMax}.UnmarshalFrom(reader, request)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		into <- request
	}
}

// replies is the one writer of the stream.
type replies struct {
	lock sync.Mutex
	out  *bufio.Writer
	err  error
}

func (r *replies) send(reply *wire.Reply) {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.err != nil {
		return
	}
	if _, err := protodelim.MarshalTo(r.out, reply); err != nil {
		r.err = fmt.Errorf("write a reply: %w", err)
		return
	}
	if err := r.out.Flush(); err != nil {
		r.err = fmt.Errorf("write a reply: %w", err)
	}
}

// answer runs one call. A panic of a library hurts that call alone.
func (s *Server) answer(request *wire.Request) (reply *wire.Reply) {
	start := time.Now()
	read := &reads.Set{}
	reply = &wire.Reply{Id: request.GetId()}
	defer func() {
		if cause := recover(); cause != nil {
			log.Printf("request %d panicked: %v\n%s", request.GetId(), cause, debug.Stack())
			fault(reply, fail.New(wire.Error_INTERNAL, fmt.Sprintf("the renderer panicked: %v", cause)))
		}
		reply.Reads = read.Wire()
		reply.Micros = uint64(time.Since(start).Microseconds())
	}()

	switch call := request.GetCall().(type) {
	case *wire.Request_HelmTemplate:
		rendered, err := helm.Template(call.HelmTemplate, read)
		if err != nil {
			fault(reply, err)
		} else {
			reply.Outcome = &wire.Reply_Rendered{Rendered: rendered}
		}
	case *wire.Request_KustomizeBuild:
		rendered, err := s.Kustomize.Build(call.KustomizeBuild, read)
		if err != nil {
			fault(reply, err)
		} else {
			reply.Outcome = &wire.Reply_Rendered{Rendered: rendered}
		}
	case *wire.Request_HelmInspect:
		details, err := helm.Inspect(call.HelmInspect, read)
		if err != nil {
			fault(reply, err)
		} else {
			reply.Outcome = &wire.Reply_HelmDetails{HelmDetails: details}
		}
	case *wire.Request_KustomizeInspect:
		details, err := s.Kustomize.Inspect(call.KustomizeInspect, read)
		if err != nil {
			fault(reply, err)
		} else {
			reply.Outcome = &wire.Reply_KustomizeDetails{KustomizeDetails: details}
		}
	case *wire.Request_Version:
		reply.Outcome = &wire.Reply_Versions{Versions: s.Versions}
	default:
		fault(reply, fail.New(wire.Error_REQUEST, "the request carries no call that this worker knows"))
	}
	return reply
}

func fault(reply *wire.Reply, err error) {
	reply.Outcome = &wire.Reply_Error{Error: fail.Of(err)}
}
