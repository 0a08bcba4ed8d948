package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/casbin/casbin/v2"
	"github.com/casbin/casbin/v2/model"
	"github.com/gobwas/glob"
)

// rbacModel is Argo CD's one model: allowed by some rule, denied by none, roles through roles.
const rbacModel = `
[request_definition]
r = sub, res, act, obj

[policy_definition]
p = sub, res, act, obj, eft

[role_definition]
g = _, _

[policy_effect]
e = some(where (p.eft == allow)) && !some(where (p.eft == deny))

[matchers]
m = g(r.sub, p.sub) && matches(r.res, p.res) && matches(r.act, p.act) && matches(r.obj, p.obj)
`

// rbac enforces requests, each of subject, resource, action and object, against the lines of a policy.
func rbac(raw json.RawMessage) (any, error) {
	var request struct {
		Lines    [][]string `json:"lines"`
		Regex    bool       `json:"regex"`
		Requests [][]string `json:"requests"`
	}
	if err := json.Unmarshal(raw, &request); err != nil {
		return nil, err
	}
	parsed, err := model.NewModelFromString(rbacModel)
	if err != nil {
		return nil, err
	}
	enforcer, err := casbin.NewEnforcer(parsed)
	if err != nil {
		return nil, err
	}
	enforcer.AddFunction("matches", func(arguments ...any) (any, error) {
		text, pattern := arguments[0].(string), arguments[1].(string)
		if request.Regex {
			return regexp.MatchString(pattern, text)
		}
		compiled, err := glob.Compile(pattern)
		if err != nil {
			return false, nil
		}
		return compiled.Match(text), nil
	})
	for _, line := range request.Lines {
		switch line[0] {
		case "p":
			_, err = enforcer.AddPolicy(line[1:])
		case "g":
			_, err = enforcer.AddGroupingPolicy(line[1:])
		default:
			err = fmt.Errorf("a line of neither kind: %s", strings.Join(line, ", "))
		}
		if err != nil {
			return nil, err
		}
	}
	answers := make([]bool, len(request.Requests))
	for at, asked := range request.Requests {
		answers[at], err = enforcer.Enforce(asked[0], asked[1], asked[2], asked[3])
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}
