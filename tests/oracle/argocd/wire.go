package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"reflect"
	"strings"
	"time"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient/account"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/application"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/cluster"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/events"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/gpgkey"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/notification"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/project"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/repository"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/session"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/settings"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/version"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// answerAll reads one JSON request a line and writes one JSON answer a line, in order, as the oracle beside this does.
func answerAll(in io.Reader, out io.Writer) {
	lines := bufio.NewReader(in)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			answer := map[string]any{}
			if result, err := operation(line); err != nil {
				answer["error"] = err.Error()
			} else {
				answer["result"] = result
			}
			if encoder.Encode(answer) != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func operation(line json.RawMessage) (any, error) {
	var request struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	switch request.Op {
	case "wire":
		return wire(line)
	case "redis":
		return entries(line)
	case "plugin":
		return plugin(line)
	}
	return nil, fmt.Errorf("unknown operation %q", request.Op)
}

// message is what both codecs of Argo CD's API take: generated protobuf, and encoding/json in its REST gateway.
type message interface{ Marshal() ([]byte, error) }

// answers are the messages that leave Argo CD's API server, by the name that the other side gives them.
var answers = map[string]message{
	"Application":               &v1alpha1.Application{},
	"ApplicationList":           &v1alpha1.ApplicationList{},
	"ApplicationWatchEvent":     &v1alpha1.ApplicationWatchEvent{},
	"ApplicationTree":           &v1alpha1.ApplicationTree{},
	"ApplicationSpec":           &v1alpha1.ApplicationSpec{},
	"ApplicationSet":            &v1alpha1.ApplicationSet{},
	"ApplicationSetList":        &v1alpha1.ApplicationSetList{},
	"ApplicationSetTree":        &v1alpha1.ApplicationSetTree{},
	"AppProject":                &v1alpha1.AppProject{},
	"AppProjectList":            &v1alpha1.AppProjectList{},
	"Cluster":                   &v1alpha1.Cluster{},
	"ClusterList":               &v1alpha1.ClusterList{},
	"Repository":                &v1alpha1.Repository{},
	"RepositoryList":            &v1alpha1.RepositoryList{},
	"RepoCreds":                 &v1alpha1.RepoCreds{},
	"RepoCredsList":             &v1alpha1.RepoCredsList{},
	"RepositoryCertificateList": &v1alpha1.RepositoryCertificateList{},
	"GnuPGPublicKey":            &v1alpha1.GnuPGPublicKey{},
	"GnuPGPublicKeyList":        &v1alpha1.GnuPGPublicKeyList{},
	"RevisionMetadata":          &v1alpha1.RevisionMetadata{},
	"ChartDetails":              &v1alpha1.ChartDetails{},
	"OCIMetadata":               &v1alpha1.OCIMetadata{},

	"account.Account":                            &account.Account{},
	"account.AccountsList":                       &account.AccountsList{},
	"account.CanIResponse":                       &account.CanIResponse{},
	"account.CreateTokenResponse":                &account.CreateTokenResponse{},
	"application.ApplicationResourceResponse":    &application.ApplicationResourceResponse{},
	"application.ApplicationSyncWindowsResponse": &application.ApplicationSyncWindowsResponse{},
	"application.LinksResponse":                  &application.LinksResponse{},
	"application.LogEntry":                       &application.LogEntry{},
	"application.ManagedResourcesResponse":       &application.ManagedResourcesResponse{},
	"application.ResourceActionsListResponse":    &application.ResourceActionsListResponse{},
	"cluster.ClusterResponse":                    &cluster.ClusterResponse{},
	"events.EventList":                           &events.EventList{},
	"gpgkey.GnuPGPublicKeyCreateResponse":        &gpgkey.GnuPGPublicKeyCreateResponse{},
	"notification.TriggerList":                   &notification.TriggerList{},
	"notification.ServiceList":                   &notification.ServiceList{},
	"notification.TemplateList":                  &notification.TemplateList{},
	"project.DetailedProjectsResponse":           &project.DetailedProjectsResponse{},
	"project.GlobalProjectsResponse":             &project.GlobalProjectsResponse{},
	"project.ProjectTokenResponse":               &project.ProjectTokenResponse{},
	"project.SyncWindowsResponse":                &project.SyncWindowsResponse{},
	"repository.HelmChartsResponse":              &apiclient.HelmChartsResponse{},
	"repository.ManifestResponse":                &apiclient.ManifestResponse{},
	"repository.Refs":                            &apiclient.Refs{},
	"repository.RepoAppDetailsResponse":          &apiclient.RepoAppDetailsResponse{},
	"repository.RepoAppsResponse":                &repository.RepoAppsResponse{},
	"session.GetUserInfoResponse":                &session.GetUserInfoResponse{},
	"session.SessionResponse":                    &session.SessionResponse{},
	"settings.Settings":                          &settings.Settings{},
	"version.VersionMessage":                     &version.VersionMessage{},
}

// wire fills a message by chance and writes it as Argo CD does, as protobuf and as JSON. A share of 0 leaves it empty, one
// of 1 sets everything there is. Without a name it lists the names.
func wire(line json.RawMessage) (any, error) {
	var request struct {
		Message string  `json:"message"`
		Seed    int64   `json:"seed"`
		Share   float64 `json:"share"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return nil, err
	}
	if request.Message == "" {
		var names []string
		for name := range answers {
			names = append(names, name)
		}
		return names, nil
	}
	empty, known := answers[request.Message]
	if !known {
		return nil, fmt.Errorf("unknown message %s", request.Message)
	}
	made := reflect.New(reflect.TypeOf(empty).Elem())
	filler{rand.New(rand.NewSource(request.Seed)), request.Share}.fill(made.Elem())
	bytes, err := made.Interface().(message).Marshal()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(made.Interface())
	if err != nil {
		return nil, err
	}
	return map[string]any{"proto": bytes, "json": json.RawMessage(text)}, nil
}

type filler struct {
	*rand.Rand
	share float64
}

func (f filler) word() string { return fmt.Sprintf("w%d", f.Intn(1000)) }

// document is JSON as people put it where any JSON may stand.
func (f filler) document() []byte {
	return []byte(fmt.Sprintf(`{"a":%q,"b":[%d,true,null],"c":{"d":1.5}}`, f.word(), f.Intn(9)))
}

func (f filler) fill(value reflect.Value) {
	if value.Kind() == reflect.Struct && !isValue(value) {
		f.fields(value)
		return
	}
	if f.Float64() >= f.share {
		return
	}
	switch value.Interface().(type) {
	case metav1.Time:
		value.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1_700_000_000+f.Int63n(1e8), 0).UTC())))
		return
	case metav1.MicroTime:
		micros := 1_700_000_000_000_000 + f.Int63n(1e14)
		value.Set(reflect.ValueOf(metav1.NewMicroTime(time.UnixMicro(micros).UTC())))
		return
	case runtime.RawExtension:
		value.Set(reflect.ValueOf(runtime.RawExtension{Raw: f.document()}))
		return
	case apiextensions.JSON:
		value.Set(reflect.ValueOf(apiextensions.JSON{Raw: f.document()}))
		return
	case metav1.FieldsV1:
		value.Set(reflect.ValueOf(metav1.FieldsV1{Raw: []byte(`{"f:spec":{}}`)}))
		return
	case intstr.IntOrString:
		value.Set(reflect.ValueOf([]intstr.IntOrString{intstr.FromInt32(f.Int31n(9)), intstr.FromString("25%")}[f.Intn(2)]))
		return
	}
	switch value.Kind() {
	case reflect.Bool:
		value.SetBool(true)
	case reflect.String:
		value.SetString(f.word())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		value.SetInt(1 + f.Int63n(1_000_000))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		value.SetUint(1 + uint64(f.Intn(100)))
	case reflect.Float32, reflect.Float64:
		value.SetFloat(float64(f.Intn(100)) / 4)
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		if isValue(value.Elem()) {
			f.share = 1
		}
		f.fill(value.Elem())
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), 1+f.Intn(2), 2))
		for at := range value.Len() {
			f.fill(value.Index(at))
			f.present(value.Index(at))
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(value.Type()))
		for range 1 + f.Intn(2) {
			element := reflect.New(value.Type().Elem()).Elem()
			f.fill(element)
			f.present(element)
			value.SetMapIndex(reflect.ValueOf(f.word()).Convert(value.Type().Key()), element)
		}
	}
}

// isValue tells structs that stand for one value: they are written as a whole.
func isValue(value reflect.Value) bool {
	switch value.Interface().(type) {
	case metav1.Time, metav1.MicroTime, runtime.RawExtension, apiextensions.JSON, metav1.FieldsV1, intstr.IntOrString:
		return true
	}
	return false
}

func (f filler) fields(value reflect.Value) {
	for at := range value.NumField() {
		field := value.Type().Field(at)
		// What only the generated code uses, and kind and version of an object, which the API never tells.
		if !field.IsExported() || field.Name == "TypeMeta" || strings.HasPrefix(field.Name, "XXX_") {
			continue
		}
		f.fill(value.Field(at))
		if strings.Contains(field.Tag.Get("protobuf"), ",req,") {
			f.present(value.Field(at))
		}
	}
}

// present makes an element of a list or map, or a required field, be there: protobuf has no null among them.
func (f filler) present(element reflect.Value) {
	if element.Kind() == reflect.Pointer && element.IsNil() {
		element.Set(reflect.New(element.Type().Elem()))
		if element.Elem().Kind() == reflect.Struct {
			filler{f.Rand, 0}.fields(element.Elem())
		}
	}
}
