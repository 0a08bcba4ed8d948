package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient/application"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// described is the Application that everything is about.
func (p *person) described() *v1alpha1.Application {
	app := &v1alpha1.Application{Spec: v1alpha1.ApplicationSpec{
		Project:     p.name("shop"),
		Source:      &v1alpha1.ApplicationSource{RepoURL: os.Getenv("REPOSITORY"), Path: "app", TargetRevision: "HEAD"},
		Destination: v1alpha1.ApplicationDestination{Server: "https://kubernetes.default.svc", Namespace: p.name("web")},
		SyncPolicy:  &v1alpha1.SyncPolicy{SyncOptions: v1alpha1.SyncOptions{"CreateNamespace=true"}},
	}}
	app.Name = p.name("web")
	return app
}

// synced waits, by a watch as the official program does, until a sync to a revision has ended well.
func (p *person) synced(step, revision string) {
	events := p.WatchApplicationWithRetry(ctx(), p.name("web"), "")
	for event := range events {
		state := event.Application.Status.OperationState
		if state == nil || !state.Phase.Completed() || event.Application.Operation != nil {
			continue
		}
		p.check(step, state.Phase == "Succeeded", state.Message)
		if state.SyncResult.Revision == revision {
			return
		}
	}
	p.fail(step, "the watch has ended")
}

func (p *person) application() {
	apps := open(p, "create an application", p.NewApplicationClient)
	name, first, second := p.name("web"), os.Getenv("FIRST"), os.Getenv("SECOND")
	yes, kind, group := true, "Deployment", "apps"
	app := p.described()
	missing := p.described()
	missing.Spec.Source.Path = "missing"
	_, err := apps.Create(ctx(), &application.ApplicationCreateRequest{Application: missing, Validate: &yes})
	p.refused("create an application of what is not there", err, codes.InvalidArgument)
	p.check("it is told why", strings.Contains(err.Error(), "Unable to generate manifests in missing"), err)
	_, err = apps.Create(ctx(), &application.ApplicationCreateRequest{Application: app, Validate: &yes})
	p.must("create an application", err)
	app.Spec.Source.Path = "elsewhere"
	_, err = apps.Create(ctx(), &application.ApplicationCreateRequest{Application: app})
	p.refused("create another one of that name", err, codes.InvalidArgument)
	hard := "hard"
	found, err := apps.Get(ctx(), &application.ApplicationQuery{Name: &name, Refresh: &hard})
	p.must("get it, looked at anew", err)
	p.check("it is out of sync", found.Status.Sync.Status == v1alpha1.SyncStatusCodeOutOfSync, found.Status.Sync)

	managed, err := apps.ManagedResources(ctx(), &application.ResourcesQuery{ApplicationName: &name})
	p.must("compare", err)
	p.check("two resources are to be made", len(managed.Items) == 2 && managed.Items[0].LiveState == "null", managed.Items)
	manifests, err := apps.GetManifests(ctx(), &application.ApplicationManifestQuery{Name: &name, Revision: &first})
	p.must("read its manifests", err)
	p.check("they are those of the revision", strings.Contains(strings.Join(manifests.Manifests, ""), `"first"`), manifests)

	_, err = apps.Sync(ctx(), &application.ApplicationSyncRequest{Name: &name, Revision: &first})
	p.must("sync to the first revision", err)
	p.synced("wait for the first revision", first)
	_, err = apps.Sync(ctx(), &application.ApplicationSyncRequest{Name: &name, Prune: &yes})
	p.must("sync to the newest revision", err)
	p.synced("wait for the newest revision", second)
	p.eventually("it is healthy", func() (bool, any) {
		found, err = apps.Get(ctx(), &application.ApplicationQuery{Name: &name})
		p.must("get it", err)
		return found.Status.Health.Status == "Healthy", found.Status.Health
	})
	history := found.Status.History
	p.check("its history has both", len(history) == 2 && history[0].Revision == first && history[1].Revision == second, history)
	metadata, err := apps.RevisionMetadata(ctx(), &application.RevisionMetadataQuery{Name: &name, Revision: &second})
	p.must("ask who made the revision", err)
	p.check("somebody made it", metadata.Author != "" && !metadata.Date.IsZero(), metadata)

	_, err = apps.Rollback(ctx(), &application.ApplicationRollbackRequest{Name: &name, Id: &history[0].ID, Prune: &yes})
	p.must("roll back", err)
	p.synced("wait for the rollback", first)
	namespace, version, config, core := p.name("web"), "v1", "ConfigMap", ""
	settings := "settings"
	live, err := apps.GetResource(ctx(), &application.ApplicationResourceRequest{
		Name: &name, Namespace: &namespace, ResourceName: &settings, Version: &version, Group: &core, Kind: &config,
	})
	p.must("look at the live object", err)
	p.check("it is as before", strings.Contains(live.GetManifest(), `"text":"first"`), live.GetManifest())

	deployment := "web"
	actions, err := apps.ListResourceActions(ctx(), &application.ApplicationResourceRequest{
		Name: &name, Namespace: &namespace, ResourceName: &deployment, Version: &version, Group: &group, Kind: &kind,
	})
	p.must("list actions", err)
	restart := "restart"
	has := false
	for _, action := range actions.Actions {
		has = has || action.Name == restart && !action.Disabled
	}
	p.check("it can be restarted", has, actions)
	_, err = apps.RunResourceActionV2(ctx(), &application.ResourceActionRunRequestV2{
		Name: &name, Namespace: &namespace, ResourceName: &deployment, Version: &version, Group: &group, Kind: &kind, Action: &restart,
	})
	p.must("restart it", err)
	live, err = apps.GetResource(ctx(), &application.ApplicationResourceRequest{
		Name: &name, Namespace: &namespace, ResourceName: &deployment, Version: &version, Group: &group, Kind: &kind,
	})
	p.must("look at the deployment", err)
	p.check("it was restarted", strings.Contains(live.GetManifest(), "kubectl.kubernetes.io/restartedAt"), live.GetManifest())

	tree, err := apps.ResourceTree(ctx(), &application.ResourcesQuery{ApplicationName: &name})
	p.must("look at its tree", err)
	kinds := map[string]int{}
	for _, node := range tree.Nodes {
		kinds[node.Kind]++
	}
	p.check("the tree goes down to pods", kinds["Deployment"] == 1 && kinds["ReplicaSet"] > 0 && kinds["Pod"] > 0, kinds)
	p.logs(apps)
	events, err := apps.ListResourceEvents(ctx(), &application.ApplicationResourceEventsQuery{Name: &name})
	p.must("list its events", err)
	p.check("its events are listed", len(events.Items) > 0, events)
	windows, err := apps.GetApplicationSyncWindows(ctx(), &application.ApplicationSyncWindowsQuery{Name: &name})
	p.must("ask for its windows", err)
	p.check("no window holds it", windows.GetCanSync(), windows)

	text := `{"metadata":{"labels":{"team":"shop"}}}`
	merge := "merge"
	patched, err := apps.Patch(ctx(), &application.ApplicationPatchRequest{Name: &name, Patch: &text, PatchType: &merge})
	p.must("patch it", err)
	p.check("it is patched", patched.Labels["team"] == "shop", patched.Labels)
	selector := "team=shop"
	listed, err := apps.List(ctx(), &application.ApplicationQuery{Selector: &selector, Projects: []string{p.name("shop")}})
	p.must("list by label and project", err)
	p.check("it alone is listed", len(listed.Items) == 1 && listed.Items[0].Name == name, listed)
}

// logs reads what a container says, until the stream's last entry.
func (p *person) logs(apps application.ApplicationServiceClient) {
	name, kind, group, deployment, namespace := p.name("web"), "Deployment", "apps", "web", p.name("web")
	p.eventually("a container says something", func() (bool, any) {
		stream, err := apps.PodLogs(ctx(), &application.ApplicationPodLogsQuery{
			Name: &name, Kind: &kind, Group: &group, ResourceName: &deployment, Namespace: &namespace,
		})
		p.must("read logs", err)
		var said []string
		for {
			entry, err := stream.Recv()
			if err != nil {
				return false, err
			}
			if entry.GetLast() {
				return len(said) > 0, said
			}
			said = append(said, entry.GetContent())
		}
	})
}

// files renders what a person has at home in place of the source.
func (p *person) files() {
	apps := open(p, "render files", p.NewApplicationClient)
	name := p.name("web")
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings"}, "data": map[string]any{"text": "at home"},
	})
	p.must("write a manifest", err)
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	packed := tar.NewWriter(zipped)
	p.must("pack", packed.WriteHeader(&tar.Header{Name: "app/settings.json", Mode: 0o644, Size: int64(len(manifest))}))
	_, err = packed.Write(manifest)
	p.must("pack", err)
	p.must("pack", packed.Close())
	p.must("pack", zipped.Close())
	sum := sha256.Sum256(archive.Bytes())
	checksum := hex.EncodeToString(sum[:])
	stream, err := apps.GetManifestsWithFiles(ctx())
	p.must("open an upload", err)
	query := &application.ApplicationManifestQueryWithFiles{Name: &name, Checksum: &checksum}
	p.must("send the query", stream.Send(&application.ApplicationManifestQueryWithFilesWrapper{
		Part: &application.ApplicationManifestQueryWithFilesWrapper_Query{Query: query},
	}))
	for rest := archive.Bytes(); len(rest) > 0; {
		chunk := rest[:min(100, len(rest))]
		rest = rest[len(chunk):]
		err := stream.Send(&application.ApplicationManifestQueryWithFilesWrapper{
			Part: &application.ApplicationManifestQueryWithFilesWrapper_Chunk{Chunk: &application.FileChunk{Chunk: chunk}},
		})
		if err == io.EOF {
			break
		}
		p.must("send files", err)
	}
	answer, err := stream.CloseAndRecv()
	p.must("render files", err)
	p.check("they are rendered", len(answer.Manifests) == 1 && strings.Contains(answer.Manifests[0], "at home"), answer)
}

// gone deletes the application with all that it owns.
func (p *person) gone() {
	apps := open(p, "delete the application", p.NewApplicationClient)
	name, project, yes := p.name("web"), p.name("shop"), true
	_, err := apps.Delete(ctx(), &application.ApplicationDeleteRequest{Name: &name, Cascade: &yes})
	p.must("delete the application", err)
	p.eventually("the application goes", func() (bool, any) {
		_, err := apps.Get(ctx(), &application.ApplicationQuery{Name: &name, Project: []string{project}})
		return status.Code(err) == codes.NotFound, err
	})
	_, err = apps.Get(ctx(), &application.ApplicationQuery{Name: &name})
	p.refused("look at it without naming its project", err, codes.PermissionDenied)
}
