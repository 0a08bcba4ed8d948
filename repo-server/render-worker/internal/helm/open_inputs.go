package helm

import (
	"maps"
	"reflect"
	"slices"
	"sync"
	"text/template"

	"github.com/Masterminds/sprig/v3"
)

// Functions whose result differs from run to run. `date` and its kin are left out:
// they read the clock only if their argument is no time at all.
var impure = []string{
	"now", "ago", "uuidv4", "shuffle",
	"randAlphaNum", "randAlpha", "randAscii", "randNumeric", "randBytes", "randInt",
	"bcrypt", "htpasswd", "encryptAES",
	"genPrivateKey", "genCA", "genCAWithKey", "genSelfSignedCert", "genSelfSignedCertWithKey",
	"genSignedCert", "genSignedCertWithKey",
}

// openInputs notes which impure functions a render called.
type openInputs struct {
	lock   sync.Mutex
	called map[string]struct{}
}

func (o *openInputs) names() []string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return slices.Sorted(maps.Keys(o.called))
}

func (o *openInputs) note(name string) {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.called == nil {
		o.called = map[string]struct{}{}
	}
	o.called[name] = struct{}{}
}

// functions are Helm's own, each with a note of its call.
func (o *openInputs) functions() template.FuncMap {
	noted := template.FuncMap{}
	for name, original := range impureFunctions() {
		noted[name] = reflect.MakeFunc(original.Type(), func(arguments []reflect.Value) []reflect.Value {
			o.note(name)
			if original.Type().IsVariadic() {
				return original.CallSlice(arguments)
			}
			return original.Call(arguments)
		}).Interface()
	}
	return noted
}

var impureFunctions = sync.OnceValue(func() map[string]reflect.Value {
	found := map[string]reflect.Value{}
	all := sprig.TxtFuncMap()
	for _, name := range impure {
		if function, ok := all[name]; ok {
			found[name] = reflect.ValueOf(function)
		}
	}
	return found
})
