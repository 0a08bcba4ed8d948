package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"argosy/render-worker/internal/testtree"
	"argosy/render-worker/internal/wire"
)

// The test binary is its own child, so that the process itself is under test.
const childRole = "ARGOSY_TEST_CHILD"

func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "helm":
		os.Exit(helmCommand())
	case os.Getenv(childRole) == "worker":
		os.Exit(run())
	case os.Getenv(childRole) == "stray":
		out, err := takeStdout()
		if err != nil {
			os.Exit(1)
		}
		fmt.Println("a stray line")
		_, _ = out.WriteString("a reply")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestStrayPrintsEndInTheLog(t *testing.T) {
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childRole+"=stray")
	var out, log bytes.Buffer
	command.Stdout, command.Stderr = &out, &log
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	if out.String() != "a reply" || log.String() != "a stray line\n" {
		t.Fatalf("stdout %q, stderr %q", out.String(), log.String())
	}
}

func worker(t *testing.T, arguments []string, requests ...*wire.Request) []*wire.Reply {
	t.Helper()
	var in, out, log bytes.Buffer
	for _, request := range requests {
		if _, err := protodelim.MarshalTo(&in, request); err != nil {
			t.Fatal(err)
		}
	}
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), childRole+"=worker")
	command.Stdin, command.Stdout, command.Stderr = &in, &out, &log
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, log.String())
	}
	reader := bufio.NewReader(&out)
	var replies []*wire.Reply
	for range requests {
		reply := &wire.Reply{}
		if err := protodelim.UnmarshalFrom(reader, reply); err != nil {
			t.Fatalf("%v: %s", err, log.String())
		}
		replies = append(replies, reply)
	}
	if rest := reader.Buffered(); rest > 0 {
		t.Fatalf("%d bytes too many on stdout", rest)
	}
	return replies
}

func TestWorkerAnswersAndEndsWithItsInput(t *testing.T) {
	replies := worker(t, nil, &wire.Request{Id: 5, Call: &wire.Request_Version{Version: &wire.VersionQuery{}}})
	versions := replies[0].GetVersions()
	if versions.GetHelm() != "4.2.4" || versions.GetKustomize() != "5.8.1" || versions.GetProtocol() != 1 {
		t.Fatalf("%v", versions)
	}
}

func TestKustomizeMayInflateAChartOfTheTreeIfAllowed(t *testing.T) {
	root := testtree.Write(t, map[string]string{
		"kustomization.yaml":       "helmCharts:\n- name: web\n  releaseName: rel\n  namespace: shop\n  valuesInline: {text: inline}\nnamePrefix: p-\n",
		"charts/web/Chart.yaml":    "apiVersion: v2\nname: web\nversion: 1.0.0\n",
		"charts/web/values.yaml":   "text: chart\n",
		"charts/web/templates/c.y": "",
		"charts/web/templates/cm.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}\n  namespace: {{ .Release.Namespace }}\n" +
			"data:\n  text: {{ .Values.text }}\n  kube: {{ .Capabilities.KubeVersion.Version }}\n",
	})
	request := &wire.Request{Id: 1, Call: &wire.Request_KustomizeBuild{KustomizeBuild: &wire.KustomizeBuild{
		Root: root, BuildOptions: []string{"--enable-helm"}, KubeVersion: "v1.31.2-eks-1",
	}}}
	reply := worker(t, []string{"-allow-kustomize-helm"}, request)[0]
	if reply.GetError() != nil {
		t.Fatal(reply.GetError())
	}
	got := string(reply.GetRendered().GetObjects()[0].GetJson())
	for _, want := range []string{`"name":"p-rel"`, `"namespace":"shop"`, `"text":"inline"`, `"kube":"v1.31.2"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	// What the chart is made of, and how, is not in the read set.
	if opened := reply.GetRendered().GetOpenInputs(); len(opened) != 1 {
		t.Errorf("%v", opened)
	}
	if reply := worker(t, nil, request)[0]; reply.GetError().GetKind() != wire.Error_REFUSED {
		t.Fatalf("%v", reply)
	}
}
