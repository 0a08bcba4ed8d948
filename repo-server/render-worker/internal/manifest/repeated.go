package manifest

import (
	"bytes"
	"fmt"
	"regexp"

	"sigs.k8s.io/yaml"
)

// repeatedMost is how many repeated keys of one text are told.
const repeatedMost = 20

var repeatedKey = regexp.MustCompile(`line (\d+): key (".*?") already set in map`)

// Repeated tells the keys that stand twice in one map of a YAML text, of which the last
// counts: a sentence each, with the line inside the text.
func Repeated(text []byte) []string {
	_, err := yaml.YAMLToJSONStrict(text)
	return repeated(text, err)
}

func repeated(text []byte, err error) []string {
	// A key that says otherwise than what was merged is the reason to merge.
	if err == nil || bytes.Contains(text, []byte("<<:")) {
		return nil
	}
	var told []string
	for _, match := range repeatedKey.FindAllStringSubmatch(err.Error(), repeatedMost) {
		told = append(told, fmt.Sprintf("line %s: the key %s stands here for the second time; the last one counts", match[1], match[2]))
	}
	return told
}

// convert makes JSON of one YAML document (nil of an empty one) and tells the keys that it repeats. It is read once,
// unless something is the matter.
func convert(text []byte) (object []byte, told []string, err error) {
	object, err = yaml.YAMLToJSONStrict(text)
	if err != nil {
		told = repeated(text, err)
		object, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		return nil, nil, err
	}
	object, err = Object(object)
	return object, told, err
}
