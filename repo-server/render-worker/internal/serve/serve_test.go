package serve

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

func frames(t *testing.T, requests ...*wire.Request) *bytes.Buffer {
	t.Helper()
	var stream bytes.Buffer
	for _, request := range requests {
		if _, err := protodelim.MarshalTo(&stream, request); err != nil {
			t.Fatal(err)
		}
	}
	return &stream
}

func readReplies(t *testing.T, stream io.Reader) map[uint64]*wire.Reply {
	t.Helper()
	reader := bufio.NewReader(stream)
	found := map[uint64]*wire.Reply{}
	for {
		reply := &wire.Reply{}
		err := protodelim.UnmarshalFrom(reader, reply)
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		if found[reply.GetId()] != nil {
			t.Fatalf("two replies to request %d", reply.GetId())
		}
		found[reply.GetId()] = reply
	}
}

func run(t *testing.T, requests ...*wire.Request) map[uint64]*wire.Reply {
	t.Helper()
	var out bytes.Buffer
	server := &Server{Concurrency: 3, Versions: &wire.Versions{Helm: "4", Protocol: Protocol}}
	if err := server.Serve(frames(t, requests...), &out); err != nil {
		t.Fatal(err)
	}
	return readReplies(t, &out)
}

func template(id uint64, dir string) *wire.Request {
	return &wire.Request{Id: id, Call: &wire.Request_HelmTemplate{HelmTemplate: &wire.HelmTemplate{ChartDir: dir, ReleaseName: "rel"}}}
}

var chart = map[string]string{
	"Chart.yaml":        "apiVersion: v2\nname: web\nversion: 1.0.0\n",
	"templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n",
}

func TestEveryRequestIsAnsweredOnceBeforeTheEnd(t *testing.T) {
	good := testtree.Write(t, chart)
	bad := testtree.Write(t, testtree.With(chart, map[string]string{"templates/cm.yaml": "{{ fail \"no\" }}"}))
	var requests []*wire.Request
	for id := range uint64(40) {
		dir := good
		if id%4 == 3 {
			dir = bad
		}
		requests = append(requests, template(id, dir))
	}
	got := run(t, requests...)
	for id := range uint64(40) {
		reply := got[id]
		if (id%4 == 3) != (reply.GetError().GetKind() == wire.Error_TEMPLATE) || (id%4 != 3) != (len(reply.GetRendered().GetObjects()) == 1) {
			t.Errorf("request %d: %v", id, reply)
		}
		if len(reply.GetReads().GetTrees()) != 1 {
			t.Errorf("request %d: reads %v", id, reply.GetReads())
		}
	}
}

func TestVersionQuery(t *testing.T) {
	got := run(t, &wire.Request{Id: 9, Call: &wire.Request_Version{Version: &wire.VersionQuery{}}})
	if got[9].GetVersions().GetHelm() != "4" || got[9].GetVersions().GetProtocol() != 1 {
		t.Fatalf("%v", got[9])
	}
}

func TestRequestWithoutACallIsRefusedAlone(t *testing.T) {
	got := run(t, &wire.Request{Id: 1}, &wire.Request{Id: 2, Call: &wire.Request_Version{Version: &wire.VersionQuery{}}})
	if got[1].GetError().GetKind() != wire.Error_REQUEST || got[2].GetVersions() == nil {
		t.Fatalf("%v", got)
	}
}

func TestPanicOfALibraryHurtsOneRequest(t *testing.T) {
	// Kustomize panics on a schema that is none.
	root := testtree.Write(t, map[string]string{
		"kustomization.yaml": "resources:\n- a.yaml\npatches:\n- patch: \"apiVersion: v1\\nkind: Service\\nmetadata: {name: a}\\nspec: {x: y}\\n\"\nopenapi:\n  path: schema.json\n",
		"a.yaml":             "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\nspec:\n  x: z\n",
		"schema.json":        "[1, 2]",
	})
	fine := testtree.Write(t, map[string]string{"kustomization.yaml": "resources:\n- a.yaml\n", "a.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n"})
	build := func(id uint64, root string) *wire.Request {
		return &wire.Request{Id: id, Call: &wire.Request_KustomizeBuild{KustomizeBuild: &wire.KustomizeBuild{Root: root}}}
	}
	got := run(t, build(1, root), build(2, fine), template(3, testtree.Write(t, chart)), build(4, root), build(5, fine))
	for _, id := range []uint64{1, 4} {
		if failure := got[id].GetError(); failure.GetKind() != wire.Error_INTERNAL || !strings.Contains(failure.GetMessage(), "panicked") {
			t.Errorf("request %d: %v", id, got[id])
		}
	}
	for _, id := range []uint64{2, 3, 5} {
		if len(got[id].GetRendered().GetObjects()) != 1 {
			t.Errorf("request %d: %v", id, got[id])
		}
	}
}

func TestBrokenFrameEndsTheStreamAfterTheRestIsAnswered(t *testing.T) {
	stream := frames(t, &wire.Request{Id: 1, Call: &wire.Request_Version{Version: &wire.VersionQuery{}}})
	stream.Write([]byte{3, 0xff, 0xff, 0xff})
	var out bytes.Buffer
	err := (&Server{Versions: &wire.Versions{}}).Serve(stream, &out)
	if err == nil || !strings.Contains(err.Error(), "read a request") {
		t.Fatalf("%v", err)
	}
	if got := readReplies(t, &out); got[1] == nil {
		t.Fatal("the request before it has no reply")
	}
}

func TestFrameThatIsTooLongIsRefused(t *testing.T) {
	stream := bytes.NewBuffer([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	if err := (&Server{}).Serve(stream, io.Discard); err == nil {
		t.Fatal("read it")
	}
}

func TestCutFrameIsAnError(t *testing.T) {
	whole := frames(t, template(1, "/x")).Bytes()
	if err := (&Server{}).Serve(bytes.NewReader(slices.Clone(whole[:len(whole)-1])), io.Discard); err == nil {
		t.Fatal("read it")
	}
}
