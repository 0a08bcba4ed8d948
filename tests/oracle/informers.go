package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// The longest wait for what is about to happen anyway.
const patience = 5 * time.Minute

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// informers follows a cluster as controllers do it, changes something there, and tells what it has seen of that.
func informers(request json.RawMessage) (any, error) {
	var asked struct {
		Kubeconfig json.RawMessage `json:"kubeconfig"`
	}
	if err := json.Unmarshal(request, &asked); err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(asked.Kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kinds, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("discover: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	seen := &events{}
	for _, kind := range []schema.GroupVersionResource{configMaps, pods, deployments} {
		if _, err := factory.ForResource(kind).Informer().AddEventHandler(seen.of(kind.Resource)); err != nil {
			return nil, err
		}
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return nil, fmt.Errorf("%s: not synced", kind.Resource)
		}
	}
	if err := change(ctx, client, seen); err != nil {
		return nil, err
	}
	ready := func() bool {
		web, err := factory.ForResource(deployments).Lister().ByNamespace("default").Get("web")
		if err != nil {
			return false
		}
		count, _, _ := unstructured.NestedInt64(web.(*unstructured.Unstructured).Object, "status", "readyReplicas")
		return count == 2
	}
	if err := until(ctx, "the Deployment is ready", ready); err != nil {
		return nil, err
	}
	// The watch of Pods is another one, and may be behind that of Deployments.
	if err := until(ctx, "two Pods are seen", func() bool { return len(seen.told("pods")) >= 2 }); err != nil {
		return nil, err
	}
	return map[string]any{"groups": len(kinds), "events": seen.told("configmaps"), "pods": len(seen.told("pods"))}, nil
}

// change creates, changes and deletes a ConfigMap, each after the last has been seen, and creates a Deployment.
func change(ctx context.Context, client dynamic.Interface, seen *events) error {
	object := func(text string) *unstructured.Unstructured {
		var object map[string]any
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			panic(err)
		}
		return &unstructured.Unstructured{Object: object}
	}
	maps := client.Resource(configMaps).Namespace("default")
	created, err := maps.Create(ctx, object(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}, "data": {"a": "1"}}`), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := until(ctx, "the creation is seen", func() bool { return len(seen.told("configmaps")) == 1 }); err != nil {
		return err
	}
	if err := unstructured.SetNestedField(created.Object, "2", "data", "a"); err != nil {
		return err
	}
	if _, err := maps.Update(ctx, created, metav1.UpdateOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the change is seen", func() bool { return len(seen.told("configmaps")) == 2 }); err != nil {
		return err
	}
	if err := maps.Delete(ctx, "seen", metav1.DeleteOptions{}); err != nil {
		return err
	}
	if err := until(ctx, "the deletion is seen", func() bool { return len(seen.told("configmaps")) == 3 }); err != nil {
		return err
	}
	_, err = client.Resource(deployments).Namespace("default").Create(ctx, object(`{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
		"spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
		"spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}}}`), metav1.CreateOptions{})
	return err
}

func until(ctx context.Context, what string, holds func() bool) error {
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// events are what handlers were told, by kind, each object's first sight and end, and changes of ConfigMaps.
type events struct {
	lock sync.Mutex
	all  map[string][]string
}

func (e *events) of(resource string) cache.ResourceEventHandler {
	note := func(what string, object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		e.lock.Lock()
		defer e.lock.Unlock()
		if e.all == nil {
			e.all = map[string][]string{}
		}
		found := object.(*unstructured.Unstructured)
		e.all[resource] = append(e.all[resource], what+" "+found.GetName())
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) { note("added", object) },
		UpdateFunc: func(_, object any) {
			if resource == configMaps.Resource {
				note("changed", object)
			}
		},
		DeleteFunc: func(object any) { note("deleted", object) },
	}
}

// told leaves out what every namespace has of itself.
func (e *events) told(resource string) []string {
	e.lock.Lock()
	defer e.lock.Unlock()
	return slices.DeleteFunc(slices.Clone(e.all[resource]), func(text string) bool { return text == "added kube-root-ca.crt" })
}
