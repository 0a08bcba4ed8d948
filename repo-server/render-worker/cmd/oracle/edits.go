package main

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"argosy/render-worker/internal/wire"
)

func plainBuild(w work) *wire.KustomizeBuild {
	path, err := filepath.Rel(w.root, w.dir)
	if err != nil {
		path = w.dir
	}
	return &wire.KustomizeBuild{Root: w.root, Path: path}
}

const deploymentPatch = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: any
  annotations:
    oracle-patch: applied
`

// edits makes up one edit of every kind, for what the kustomization holds: as fields of
// a request and as commands.
func (o *oracle) edits(w work) (*wire.KustomizeBuild, [][]string) {
	build := plainBuild(w)
	build.NamePrefix, build.NameSuffix, build.Namespace = "pre-", "-suf", "edited"
	build.CommonLabels = map[string]string{"oracle": "label"}
	build.ForceCommonLabels, build.LabelWithoutSelector, build.LabelIncludeTemplates = true, true, true
	build.CommonAnnotations = map[string]string{"oracle": "annotation"}
	build.ForceCommonAnnotations = true
	commands := [][]string{
		{"set", "nameprefix", "--", "pre-"},
		{"set", "namesuffix", "--", "-suf"},
	}
	plain, err := o.byWorker(w)
	workload, image := "", ""
	if err == nil {
		workload, image = firstWorkload(plain)
	}
	if image != "" {
		build.Images = []string{image + "=example.test/replaced:9.9.9"}
		commands = append(commands, []string{"set", "image", build.Images[0]})
	}
	if workload != "" {
		build.Replicas = []*wire.KustomizeReplica{{Name: workload, Count: 7}}
		commands = append(commands, []string{"set", "replicas", workload + "=7"})
	}
	commands = append(commands,
		[]string{"add", "label", "--force", "--without-selector", "--include-templates", "oracle:label"},
		[]string{"add", "annotation", "--force", "oracle:annotation"},
		[]string{"set", "namespace", "--", "edited"},
	)
	if workload != "" {
		build.Patches = []*wire.KustomizePatch{{Patch: deploymentPatch, Target: &wire.KustomizeSelector{Kind: "Deployment"}}}
		commands = append(commands, []string{"add", "patch", "--kind", "Deployment", "--patch", deploymentPatch})
	}
	return build, commands
}

// firstWorkload is the first Deployment and the name of its first image.
func firstWorkload(rendered *wire.Rendered) (name, image string) {
	for _, object := range rendered.GetObjects() {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct {
				Template struct {
					Spec struct{ Containers []struct{ Image string } }
				}
			}
		}
		if json.Unmarshal(object.GetJson(), &head) != nil || head.Kind != "Deployment" {
			continue
		}
		if containers := head.Spec.Template.Spec.Containers; len(containers) > 0 {
			image, _, _ = strings.Cut(containers[0].Image, "@")
			if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
				image = image[:at]
			}
		}
		return head.Metadata.Name, image
	}
	return "", ""
}
