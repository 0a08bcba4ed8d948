package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient/account"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/application"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/events"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/project"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/session"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/settings"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/version"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
)

// rest asks by HTTP. Each answer must be exactly what Go writes of the type that it stands for: no key more or less, none
// spelled or written otherwise.
func (p *person) rest() {
	app, shop, repo := p.name("web"), p.name("shop"), url.QueryEscape(os.Getenv("REPOSITORY"))
	resource := "?namespace=" + app + "&resourceName=web&version=v1&group=apps&kind=Deployment"
	for path, answer := range map[string]any{
		"applications":                                                            &v1alpha1.ApplicationList{},
		"applications/" + app:                                                     &v1alpha1.Application{},
		"applications/" + app + "/events":                                         &events.EventList{},
		"applications/" + app + "/resource-tree":                                  &v1alpha1.ApplicationTree{},
		"applications/" + app + "/managed-resources":                              &application.ManagedResourcesResponse{},
		"applications/" + app + "/manifests":                                      &apiclient.ManifestResponse{},
		"applications/" + app + "/resource" + resource:                            &application.ApplicationResourceResponse{},
		"applications/" + app + "/resource/actions" + resource:                    &application.ResourceActionsListResponse{},
		"applications/" + app + "/links":                                          &application.LinksResponse{},
		"applications/" + app + "/syncwindows":                                    &application.ApplicationSyncWindowsResponse{},
		"applications/" + app + "/revisions/" + os.Getenv("SECOND") + "/metadata": &v1alpha1.RevisionMetadata{},
		"applicationsets":                                                         &v1alpha1.ApplicationSetList{},
		"projects":                                                                &v1alpha1.AppProjectList{},
		"projects/" + shop:                                                        &v1alpha1.AppProject{},
		"projects/" + shop + "/detailed":                                          &project.DetailedProjectsResponse{},
		"projects/" + shop + "/globalprojects":                                    &project.GlobalProjectsResponse{},
		"projects/" + shop + "/syncwindows":                                       &project.SyncWindowsResponse{},
		"clusters":                                                                &v1alpha1.ClusterList{},
		"clusters/" + p.name("far") + "?id.type=name":                             &v1alpha1.Cluster{},
		"repositories":                                                            &v1alpha1.RepositoryList{},
		"repositories/" + repo:                                                    &v1alpha1.Repository{},
		"repositories/" + repo + "/refs":                                          &apiclient.Refs{},
		"repocreds":                                                               &v1alpha1.RepoCredsList{},
		"certificates":                                                            &v1alpha1.RepositoryCertificateList{},
		"gpgkeys":                                                                 &v1alpha1.GnuPGPublicKeyList{},
		"account":                                                                 &account.AccountsList{},
		"account/robot":                                                           &account.Account{},
		"account/can-i/applications/get/" + shop + "/" + app:                      &account.CanIResponse{},
		"session/userinfo":                                                        &session.GetUserInfoResponse{},
		"settings":                                                                &settings.Settings{},
		"/api/version":                                                            &version.VersionMessage{},
	} {
		if path[0] != '/' {
			path = "/api/v1/" + path
		}
		text := p.known(path, p.ask(path))
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		p.must("read the answer of "+path, strict.Decode(answer))
		again, err := json.Marshal(answer)
		p.must("write the answer of "+path, err)
		if !same(text, again) {
			p.fail("the answer of "+path, fmt.Sprintf("\nwe: %s\nGo: %s", text, again))
		}
	}
}

// newer are fields that Argo CD 3.6 added to an answer, which the modules of 3.5 do not know.
var newer = map[string][]string{"/api/v1/settings": {"resourceViewEnabled"}}

// known leaves out of an answer what is newer than the types that it is held against.
func (p *person) known(path string, text []byte) []byte {
	if newer[path] == nil {
		return text
	}
	var fields map[string]json.RawMessage
	p.must("read the answer of "+path, json.Unmarshal(text, &fields))
	for _, name := range newer[path] {
		delete(fields, name)
	}
	text, err := json.Marshal(fields)
	p.must("write the answer of "+path, err)
	return text
}

// same compares two JSON documents; numbers are not texts, and absent is not null.
func same(left, right []byte) bool {
	var a, b any
	if json.Unmarshal(left, &a) != nil || json.Unmarshal(right, &b) != nil {
		return false
	}
	return reflect.DeepEqual(a, b)
}

func (p *person) ask(path string) []byte {
	client, err := p.HTTPClient()
	p.must("make an HTTP client", err)
	request, err := http.NewRequest(http.MethodGet, "https://"+os.Getenv("SERVER")+path, http.NoBody)
	p.must("make a request of "+path, err)
	request.Header.Set("Authorization", "Bearer "+p.token)
	answer, err := client.Do(request)
	p.must("ask for "+path, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	p.must("read "+path, err)
	p.check("the status of "+path, answer.StatusCode == http.StatusOK, fmt.Sprint(answer.StatusCode, " ", string(text)))
	return text
}
