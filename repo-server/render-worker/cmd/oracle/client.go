package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"

	"google.golang.org/protobuf/encoding/protodelim"

	"argosy/render-worker/internal/wire"
)

// client speaks to one worker, one call at a time.
type client struct {
	to   io.Writer
	from *bufio.Reader
	next uint64
}

func start(path string) (*client, error) {
	command := exec.Command(path)
	command.Stderr = os.Stderr
	to, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	from, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &client{to: to, from: bufio.NewReaderSize(from, 1<<20)}, nil
}

func (c *client) call(request *wire.Request) (*wire.Reply, error) {
	c.next++
	request.Id = c.next
	if _, err := protodelim.MarshalTo(c.to, request); err != nil {
		return nil, err
	}
	reply := &wire.Reply{}
	if err := (protodelim.UnmarshalOptions{MaxSize: -1}).UnmarshalFrom(c.from, reply); err != nil {
		return nil, err
	}
	if reply.GetId() != request.GetId() {
		return nil, fmt.Errorf("reply %d to request %d", reply.GetId(), request.GetId())
	}
	return reply, nil
}
