// The oracle answers what the reference implementations make of an input: the Go libraries of Kubernetes, and the comparison of Argo CD.
//
// It reads one JSON request a line from standard input and writes one JSON answer a line to standard output, in order:
//
//	{"op": "...", ...}  ->  {"result": ...} or {"error": "..."}
//
// Each operation has a file of its own.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"k8s.io/klog/v2"
)

// operations by the name that a request gives as "op".
var operations = map[string]func(json.RawMessage) (any, error){
	"quantity":    quantities,
	"yaml":        yamlTexts,
	"store":       store,
	"strategic":   strategic,
	"apply":       apply,
	"verdict":     verdict,
	"server-side": serverSide,
	"rbac":        rbac,
	"informers":   informers,
}

type answer struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			if err := encoder.Encode(answerTo(line)); err != nil {
				fmt.Fprintln(os.Stderr, "oracle: write an answer:", err)
				os.Exit(1)
			}
			// The other side waits for the answer before it asks on.
			if err := out.Flush(); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// answerTo never fails: what goes wrong inside a library, a panic included, is an answer too.
func answerTo(line []byte) (given answer) {
	defer func() {
		if panicked := recover(); panicked != nil {
			given = answer{Error: fmt.Sprint("panic: ", panicked)}
		}
	}()
	var request struct {
		Op string `json:"op"`
	}
	if err := json.Unmarshal(line, &request); err != nil {
		return answer{Error: "read the request: " + err.Error()}
	}
	operation, known := operations[request.Op]
	if !known {
		return answer{Error: "unknown operation " + request.Op}
	}
	result, err := operation(line)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Result: result}
}
