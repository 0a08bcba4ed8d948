package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	plugins "github.com/argoproj/argo-cd/v3/cmpserver/apiclient"
	"github.com/argoproj/argo-cd/v3/util/cmp"
	"google.golang.org/protobuf/types/known/emptypb"
)

// plugin has Argo CD's own client ask the sidecar behind a socket everything that its repo-server asks: what its configuration
// is, whether a folder of a repository is its own, the parameters that it takes, and the manifests.
func plugin(line json.RawMessage) (any, error) {
	var request struct {
		Socket string   `json:"socket"`
		Root   string   `json:"root"`
		App    string   `json:"app"`
		Env    []string `json:"env"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn, client, err := plugins.NewConfigManagementPluginClientSet(request.Socket).NewConfigManagementPluginClient()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	configuration, err := client.CheckPluginConfiguration(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, fmt.Errorf("check the configuration: %w", err)
	}
	send := func(stream cmp.StreamSender) error {
		return cmp.SendRepoStream(ctx, request.App, request.Root, stream, request.Env, nil)
	}
	match, err := client.MatchRepository(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for a match: %w", err)
	}
	if err := send(match); err != nil {
		return nil, err
	}
	matched, err := match.CloseAndRecv()
	if err != nil {
		return nil, fmt.Errorf("match: %w", err)
	}
	parameters, err := client.GetParametersAnnouncement(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for parameters: %w", err)
	}
	if err := send(parameters); err != nil {
		return nil, err
	}
	announced, err := parameters.CloseAndRecv()
	if err != nil {
		return nil, fmt.Errorf("parameters: %w", err)
	}
	generate, err := client.GenerateManifest(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for manifests: %w", err)
	}
	if err := send(generate); err != nil {
		return nil, err
	}
	made, err := generate.CloseAndRecv()
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	return map[string]any{
		"discovers": configuration.IsDiscoveryConfigured, "credentials": configuration.ProvideGitCreds,
		"supported": matched.IsSupported, "parameters": announced.ParameterAnnouncements, "manifests": made.Manifests,
	}, nil
}
