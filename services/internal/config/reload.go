package config

import "reflect"

// Following is the configuration with those values of next that a running process can take over.
func (c Config) Following(next Config) Config {
	from := fields(reflect.ValueOf(&next).Elem(), "")
	for i, to := range fields(reflect.ValueOf(&c).Elem(), "") {
		if to.reload {
			to.value.Set(from[i].value)
		}
	}
	return c
}

// Changes are the dotted keys whose values differ, in the order of their declaration: those that a running process can
// take over, and those that wait for its restart.
func (c Config) Changes(next Config) (follow, restart []string) {
	to := fields(reflect.ValueOf(&next).Elem(), "")
	for i, from := range fields(reflect.ValueOf(&c).Elem(), "") {
		switch {
		case reflect.DeepEqual(from.value.Interface(), to[i].value.Interface()):
		case from.reload:
			follow = append(follow, from.path)
		default:
			restart = append(restart, from.path)
		}
	}
	return follow, restart
}
