// The apiclient does with Argo CD's own Go client what people and programs do all day: log in, add a repository and a
// cluster, create an Application, compare it, sync it, wait, roll back, read logs, run an action, delete; and tokens of
// projects and accounts. Once over gRPC, once over gRPC-web. What the REST API answers is held against the Go types.
//
// With the argument `wire` it is an oracle instead: see wire.go.
//
// Its environment says where: SERVER, PASSWORD (of admin), REPOSITORY with the revisions FIRST and SECOND of the folder
// `app` (a Deployment `web` and a ConfigMap `settings` whose key `text` is "first" or "second"), CLUSTER and
// CLUSTER_TOKEN. It ends at the first step that goes otherwise than with Argo CD, and says which.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/account"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/session"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// patience is the longest wait for anything that should happen.
const patience = 120 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == "wire" {
		answerAll(os.Stdin, os.Stdout)
		return
	}
	for _, web := range []bool{false, true} {
		transport := map[bool]string{false: "grpc", true: "web"}[web]
		p := &person{transport: transport, web: web}
		p.logIn()
		p.credentials()
		p.project()
		p.application()
		if !web {
			// Streams of clients do not go over gRPC-web.
			p.files()
		}
		p.rest()
		p.gone()
		p.accounts()
		p.goodbye()
	}
	fmt.Println("all steps are as with Argo CD")
}

// person is somebody at work: a client and the names of what is theirs.
type person struct {
	apiclient.Client
	transport string
	web       bool
	token     string
}

func (p *person) name(what string) string { return what + "-" + p.transport }

// with is the same person with another token.
func (p *person) with(token string) apiclient.Client {
	client, err := apiclient.NewClient(&apiclient.ClientOptions{
		ServerAddr: os.Getenv("SERVER"), Insecure: true, GRPCWeb: p.web, AuthToken: token,
		ConfigPath: os.TempDir() + "/argosy-apiclient-has-no-config",
	})
	p.must("make a client", err)
	return client
}

func (p *person) logIn() {
	p.Client = p.with("")
	closer, client, err := p.NewSessionClient()
	p.must("open the session service", err)
	defer closer.Close()
	_, err = client.Create(ctx(), &session.SessionCreateRequest{Username: "admin", Password: "wrong-password"})
	p.refused("log in with a wrong password", err, codes.Unauthenticated)
	made, err := client.Create(ctx(), &session.SessionCreateRequest{Username: "admin", Password: os.Getenv("PASSWORD")})
	p.must("log in", err)
	p.token = made.Token
	p.Client = p.with(made.Token)
	closer, client, err = p.NewSessionClient()
	p.must("open the session service", err)
	defer closer.Close()
	info, err := client.GetUserInfo(ctx(), &session.GetUserInfoRequest{})
	p.must("ask who I am", err)
	p.check("who I am", info.LoggedIn && info.Username == "admin" && info.Iss == "argocd", info)
}

func (p *person) goodbye() {
	closer, client, err := p.NewSessionClient()
	p.must("open the session service", err)
	defer closer.Close()
	_, err = client.Delete(ctx(), &session.SessionDeleteRequest{})
	p.must("log out", err)
	_, accounts, err := p.NewAccountClient()
	p.must("open the account service", err)
	_, err = accounts.ListAccounts(ctx(), &account.ListAccountRequest{})
	p.refused("use a token after logging out", err, codes.Unauthenticated)
}

func ctx() context.Context { return context.Background() }

// must ends the run if a step failed.
func (p *person) must(step string, err error) {
	if err != nil {
		p.fail(step, err)
	}
}

// refused ends the run unless a step failed with this code.
func (p *person) refused(step string, err error, code codes.Code) {
	if status.Code(err) != code {
		p.fail(step, fmt.Sprintf("%v is expected, not %v", code, err))
	}
}

// check ends the run if something is not so.
func (p *person) check(step string, so bool, found any) {
	if !so {
		p.fail(step, found)
	}
}

func (p *person) fail(step string, why any) {
	fmt.Fprintf(os.Stderr, "%s: %s: %v\n", p.transport, step, why)
	os.Exit(1)
}

// eventually asks again and again until something is so.
func (p *person) eventually(step string, so func() (bool, any)) {
	started := time.Now()
	for {
		done, found := so()
		if done {
			return
		}
		if time.Since(started) > patience {
			p.fail(step, found)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func open[T any](p *person, step string, make func() (io.Closer, T, error)) T {
	_, client, err := make()
	p.must("open the service to "+step, err)
	return client
}
