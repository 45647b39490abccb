// The template language, expression by expression. The expected texts are what Python's jinja2
// prints in an ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks and transformers'
// filters.
#include "text/jinja.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <chrono>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr char kContext[] =
    R"~({"s":"Hello World","u":"Grüße, 世界 🙂","l":[3,1,2],"d":{"b":1,"a":[1,2.5,null,true],"c":{"k":"v<&>\"'"}},"n":7,"f":2.5,"t":true,"none_":null,"users":[{"name":"bob","age":3},{"name":"Al","age":1,"x":{"y":5}},{"name":"cy","age":3}],"big":18446744073709551615,"empty":[],"nl":"a\nb\n\nc\n"})~";

std::string RenderText(std::string_view source, std::string_view context = kContext,
                       const JinjaLimits& limits = {}) {
  JinjaTemplate tmpl("test", source, limits);
  return tmpl.Render(jinja::Value::FromJson(ParseJson("context", context)));
}

// The error of a template, empty where it renders.
std::string ErrorOf(std::string_view source, const JinjaLimits& limits = {}) {
  try {
    RenderText(source, kContext, limits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct TextRow {
  std::string_view source;
  std::string_view text;
};
constexpr TextRow kTexts[] = {
    {"{{ 1 + 2 * 3 - 4 / 2 }}", "5.0"},
    {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 "
     "}}",
     "3 -4 1 2 -2 3.0 0.5"},
    {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }} {{ 10 ** 20 }}",
     "1024 0.5 4 64 100000000000000000000"},
    {"{{ 10 / 4 }} {{ 4 / 2 }} {{ 1e3 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.0001 }} {{ "
     "123456789012345680.0 }} {{ 0.1 + 0.2 }}",
     "2.5 2.0 1000.0 1e+16 1e-05 0.0001 1.2345678901234568e+17 0.30000000000000004"},
    {"{{ 1_000 }} {{ 0x1F }} {{ 0b101 }} {{ 0o17 }} {{ 00 }} {{ 1.5e+3 }}",
     "1000 31 5 15 0 1500.0"},
    {"{{ -n }} {{ 3 - -n }} {{ +n }} {{ - - n }} {{ not n }} {{ not not n }}",
     "-7 10 7 7 False True"},
    {"{{ l[:-1] | string }} {{ l[::-1] }} {{ l[1:] }} {{ l[::2] }} {{ l[-1] }} {{ l[5:] }} {{ "
     "l[-100:100] }} {{ l[2:0:-1] }}",
     "[3, 1] [2, 1, 3] [1, 2] [3, 2] 2 [] [3, 1, 2] [2, 1]"},
    {"{{ s[::-1] }} {{ u[0:5] }} {{ u[-1] }} {{ u | length }} {{ u[7] }} {{ u[::3] }}",
     "dlroW olleH Grüße 🙂 11 世 Gß  "},
    {"{{ s[100] is defined }} {{ l['x'] is defined }} {{ l[1.5] is defined }} {{ d[['a']] is "
     "defined }}",
     "False False False False"},
    {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < "
     "[1, 3] }} {{ 2 >= 2 }} {{ 1 != 2 }}",
     "True False True True True True True True"},
    {"{{ 'a' in 'abc' }} {{ 'z' not in 'abc' }} {{ 1 in l }} {{ 'b' in d }} {{ 1 in (1, 2) }} {{ "
     "'a' in missing }} {{ '' in 'x' }}",
     "True True True True True False True"},
    {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'x'] ~ missing }}", "a1NoneTrue1.0[1, 'x']"},
    {"{{ 'x' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'x' * -1 }}|", "xxx ababab [1, 1] |"},
    {"{{ [1, 2] + [3] }} {{ (1, 2) + (3,) }} {{ 'a' + 'b' }}", "[1, 2, 3] (1, 2, 3) ab"},
    {"{{ d }}", R"~({'b': 1, 'a': [1, 2.5, None, True], 'c': {'k': 'v<&>"\''}})~"},
    {"{{ d.a }} {{ d['a'] }} {{ d.c.k }} {{ d.missing }}|",
     R"~([1, 2.5, None, True] [1, 2.5, None, True] v<&>"' |)~"},
    {"{{ d.items() | list }} {{ d.keys() | list }} {{ d.values() | list }}",
     R"~([('b', 1), ('a', [1, 2.5, None, True]), ('c', {'k': 'v<&>"\''})] ['b', 'a', 'c'] [1, [1, 2.5, None, True], {'k': 'v<&>"\''}])~"},
    {"{{ d.get('b') }} {{ d.get('zz') }} {{ d.get('zz', 5) }} {{ d['get'] is defined }}",
     "1 None 5 True"},
    {R"~({{ [1, 'a', "it's", 'q"q', 'both\'"', none, true, 1.0, (1,), (), {}, {'a': 1}] }})~",
     R"~([1, 'a', "it's", 'q"q', 'both\'"', None, True, 1.0, (1,), (), {}, {'a': 1}])~"},
    {R"~({{ ['\n\t\\', 'é', '\x00\x7f', '\u200b', '🙂'] }})~",
     R"~(['\n\t\\', 'é', '\x00\x7f', '\u200b', '🙂'])~"},
    {"{{ {'a': 1, 2: 'b', none: 3, 1.5: 2, true: 0} }}",
     "{'a': 1, 2: 'b', None: 3, 1.5: 2, True: 0}"},
    {"{{ {'a': 1, 'a': 2} }} {{ {1: 'x', true: 'y'} }}", "{'a': 2} {1: 'y'}"},
    {"{{ () }} {{ (1,) }} {{ 1, 2 }} {{ [] }} {{ {} }}", "() (1,) (1, 2) [] {}"},
    {"{{ true }} {{ True }} {{ none }} {{ None }} {{ false }}", "True True None None False"},
    {"{{ 'yes' if t else 'no' }} {{ 'yes' if missing }}| {{ 1 if false else 2 if false else 3 }}",
     "yes | 3"},
    {"{{ missing }}| {{ missing is defined }} {{ missing is undefined }} {{ missing == missing2 }} "
     "{{ missing == none }} {{ missing | length }} {{ missing | list }}",
     "| False True True False 0 []"},
    {"{{ missing or 'x' }} {{ 'a' and 'b' }} {{ 0 or none }} {{ '' or [] or 'z' }} {{ 1 and 0 and "
     "missing.x }}",
     "x b None z 0"},
    {"{{ d | tojson }}", R"~({"b": 1, "a": [1, 2.5, null, true], "c": {"k": "v<&>\"'"}})~"},
    {"{{ d | tojson(indent=2) }}",
     "{\n  \"b\": 1,\n  \"a\": [\n    1,\n    2.5,\n    null,\n    true\n  ],\n  \"c\": {\n    "
     "\"k\": \"v<&>\\\"'\"\n  }\n}"},
    {"{{ d | tojson(indent=4, ensure_ascii=True) }}",
     "{\n    \"b\": 1,\n    \"a\": [\n        1,\n        2.5,\n        null,\n        true\n    "
     "],\n    \"c\": {\n        \"k\": \"v<&>\\\"'\"\n    }\n}"},
    {R"~({{ u | tojson }} {{ u | tojson(ensure_ascii=True) }} {{ '\x7f\x1f\b\f/"\\' | tojson }})~",
     "\"Grüße, 世界 🙂\" \"Gr\\u00fc\\u00dfe, \\u4e16\\u754c \\ud83d\\ude42\" "
     "\"\177\\u001f\\b\\f/\\\"\\\\\""},
    {"{{ d | tojson(separators=(',', ':')) }} {{ d | tojson(sort_keys=True) }} {{ [[], {}, [[]]] | "
     "tojson(indent=1) }}",
     "{\"b\":1,\"a\":[1,2.5,null,true],\"c\":{\"k\":\"v<&>\\\"'\"}} {\"a\": [1, 2.5, null, true], "
     "\"b\": 1, \"c\": {\"k\": \"v<&>\\\"'\"}} [\n [],\n {},\n [\n  []\n ]\n]"},
    {"{{ [1.0, 1e100, 1e-7, 123.456, -0.0, 5e-324, 1.7976931348623157e308, "
     "100000000000000000000.0] | tojson }}",
     "[1.0, 1e+100, 1e-07, 123.456, -0.0, 5e-324, 1.7976931348623157e+308, 1e+20]"},
    {"{{ [true, none, 1, 'x', (1, 2)] | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}",
     R"~([true, null, 1, "x", [1, 2]] {"1": 4, "null": 3, "1.5": 5})~"},
    {"{{ big }} {{ big + 1 }} {{ big | tojson }} {{ -big }}",
     "18446744073709551615 18446744073709551616 18446744073709551615 -18446744073709551615"},
    {"{{ s | upper }} {{ s | lower }} {{ s | title }} {{ 'foo-bar (baz) q' | title }} {{ s | "
     "capitalize }} {{ 'straße' | upper }} {{ u | upper }}",
     "HELLO WORLD hello world Hello World Foo-Bar (Baz) Q Hello world STRASSE GRÜSSE, 世界 "
     "🙂"},
    {R"~({{ s.upper() }} {{ s.lower() }} {{ "they're bill's" .title() }} {{ 'ab cd'.capitalize() }} {{ 'aB'.swapcase() }})~",
     "HELLO WORLD hello world They'Re Bill'S Ab cd Ab"},
    {R"~({{ '  x '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ 'abcab'.lstrip('ba') }} {{ 'abcab'.rstrip('ba') }} {{ '\u00a0x\u3000'.strip() }}|)~",
     "x| a cab abc x|"},
    {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }} {{ 'a b "
     "c'.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a b c '.rsplit(none, 1) }} {{ "
     "''.split() }} {{ ''.split(',') }}",
     "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b,c'] ['a', 'b c'] ['a,b', 'c'] [' a b', 'c'] [] ['']"},
    {R"~({{ 'a</think>b</think>c'.split('</think>')[-1].lstrip('\n') }} {{ 'abc'.split('x')[0] }})~",
     "c abc"},
    {"{{ 'ab'.startswith('a') }} {{ 'ab'.endswith(('x', 'b')) }} {{ 'abc'.startswith('b', 1) }} {{ "
     "'abc'.endswith('b', 0, 2) }} {{ 'abc'.startswith('') }}",
     "True True True True True"},
    {"{{ 'banana'.replace('a', 'o') }} {{ 'banana'.replace('a', 'o', 2) }} {{ 'ab'.replace('', "
     "'-') }} {{ 'banana' | replace('an', '') }} {{ 'aaa' | replace('a', 'b', 1) }}",
     "bonono bonona -a-b- ba baa"},
    {"{{ 'banana'.find('an') }} {{ 'banana'.rfind('an') }} {{ 'banana'.find('z') }} {{ "
     "u.find('界') }} {{ 'banana'.index('n') }} {{ 'banana'.count('a') }} {{ 'aaa'.count('aa') }} "
     "{{ 'ab'.count('') }} {{ 'banana'.find('a', 2) }} {{ 'banana'.find('', 7) }}",
     "1 3 -1 8 2 3 1 3 3 -1"},
    {"{{ ','.join(['a', 'b']) }} {{ 'x'.join('abc') }} {{ l | join('-') }} {{ users | join(', ', "
     "attribute='name') }} {{ l | join }}",
     "a,b axbxc 3-1-2 bob, Al, cy 312"},
    {"{{ 'a=b=c'.partition('=') }} {{ 'a=b=c'.rpartition('=') }} {{ 'abc'.partition('=') }} {{ "
     "'abc'.rpartition('=') }}",
     "('a', '=', 'b=c') ('a=b', '=', 'c') ('abc', '', '') ('', '', 'abc')"},
    {R"~({{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }})~",
     R"~(['a', 'b', 'c'] ['a\n', 'b'])~"},
    {"{{ 'ab'.center(7, '*') }} {{ 'abc'.center(6) }}| {{ 'ab'.center(5) }}| {{ 'a'.ljust(3) }}| "
     "{{ 'a'.rjust(3, '.') }} {{ '-7'.zfill(4) }} {{ 'x' | center(5) }}|",
     "***ab**  abc  |   ab | a  | ..a -007   x  |"},
    {"{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ "
     "'AB'.isupper() }} {{ 'ab1'.islower() }} {{ ''.isalpha() }} {{ 'é'.isascii() }}",
     "True True True True True True False False"},
    {R"~({{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }} {{ 'a\tb'.expandtabs(4) }})~",
     "x x a   b"},
    {"{{ '%s is %d, %05.1f, %x, %r, %5s|%-5s|' % ('a', 7, 2.25, 255, 'q', 'r', 'l') }} {{ '%(a)s' "
     "% {'a': 5} }} {{ '%s' % 3 }} {{ '100%%' % () }} {{ '%+d %e %g' % (5, 12345.678, 0.0001) }}",
     "a is 7, 002.2, ff, 'q',     r|l    | 5 3 100% +5 1.234568e+04 0.0001"},
    {"{{ '{} {1} {x}'.replace('{1} ', '').format('a', x=2) }} {{ '{0}-{1}-{0}'.format('a', 'b') }} "
     "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}'.format('a', 'b', 'c', 42, 3.14159, 1234567) }} {{ "
     "'{a[k]} {b.x}'.replace('{b.x}', '').format(a={'k': 'v'}) }} {{ '{{}}{!r}'.format('q') }}",
     "a 2 a-b-a     a|b    |  c  |00042|3.14|1,234,567 v  {}'q'"},
    {"{{ '%s-%s' | format('a', 'b') }} {{ '%(x)s' | format(x=1) }}", "a-b 1"},
    {"{{ missing | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ none "
     "| d('x') }} {{ missing | d }}|",
     "d | d None |"},
    {"{{ l | sort }} {{ l | sort(reverse=true) }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A', 'c'] "
     "| sort(case_sensitive=true) }} {{ users | sort(attribute='age') | map(attribute='name') | "
     "list }} {{ users | sort(attribute='age,name') | map(attribute='name') | join(',') }}",
     "[1, 2, 3] [3, 2, 1] ['A', 'b', 'c'] ['A', 'b', 'c'] ['Al', 'bob', 'cy'] Al,bob,cy"},
    {"{{ l | first }} {{ l | last }} {{ 'abc' | first }} {{ 'abc' | last }} {{ empty | first }}| "
     "{{ d | first }}",
     "3 2 a c | b"},
    {"{{ l | max }} {{ l | min }} {{ l | sum }} {{ users | sum(attribute='age') }} {{ users | "
     "max(attribute='age') }} {{ ['b', 'A'] | min }} {{ [] | max }}|",
     "3 1 6 7 {'name': 'bob', 'age': 3} A |"},
    {"{{ l | length }} {{ d | count }} {{ s | length }} {{ range(5) | length }}", "3 3 11 5"},
    {"{{ l | list }} {{ 'abc' | list }} {{ d | list }} {{ l | reverse | list }} {{ 'abc' | reverse "
     "}} {{ range(3) | list }} {{ range(1, 10, 3) | list }} {{ range(3, 0, -1) | list }} {{ "
     "range(4) }}",
     "[3, 1, 2] ['a', 'b', 'c'] ['b', 'a', 'c'] [2, 1, 3] cba [0, 1, 2] [1, 4, 7] [3, 2, 1] "
     "range(0, 4)"},
    {"{{ ['a', 'A', 'b', 'a'] | unique | list }} {{ users | unique(attribute='age') | "
     "map(attribute='name') | list }} {{ [1, 1.0, true, 2] | unique | list }}",
     "['a', 'b'] ['bob', 'Al'] [1, 2]"},
    {"{{ users | map(attribute='name') | map('upper') | list }} {{ users | map(attribute='x.y', "
     "default=0) | list }} {{ l | map('string') | join }} {{ none_ | map('upper') | list }}",
     "['BOB', 'AL', 'CY'] [0, 5, 0] 312 []"},
    {"{{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ l | select('gt', 1) | list "
     "}} {{ [0, 1, ''] | select | list }} {{ users | selectattr('age', 'eq', 3) | "
     "map(attribute='name') | list }} {{ users | rejectattr('x') | list | length }} {{ users | "
     "selectattr('x', 'defined') | list | length }} {{ users | selectattr('name', 'in', ['bob']) | "
     "list | length }}",
     "[3, 1] [2] [3, 2] [1] ['bob', 'cy'] 2 1 1"},
    {"{{ users | groupby('age') | map('first') | list }} {% for a, g in users | groupby('age') "
     "%}{{ a }}:{{ g | map(attribute='name') | join('+') }};{% endfor %}",
     "[1, 3] 1:Al;3:bob+cy;"},
    {"{{ d | dictsort }} {{ d | dictsort(reverse=true) | first }} {{ {'B': 1, 'a': 2} | dictsort "
     "}} {{ {'B': 1, 'a': 2} | dictsort(true) }} {{ {'x': 2, 'y': 1} | dictsort(false, 'value') }}",
     R"~([('a', [1, 2.5, None, True]), ('b', 1), ('c', {'k': 'v<&>"\''})] ('c', {'k': 'v<&>"\''}) [('a', 2), ('B', 1)] [('B', 1), ('a', 2)] [('y', 1), ('x', 2)])~"},
    {"{{ d | items | list }} {{ missing | items | list }} {% for k, v in d | items %}{{ k }};{% "
     "endfor %}",
     R"~([('b', 1), ('a', [1, 2.5, None, True]), ('c', {'k': 'v<&>"\''})] [] b;a;c;)~"},
    {"{{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 0) | list }} {{ [1, 2, 3, 4, "
     "5] | slice(3) | list }} {{ [1, 2, 3, 4] | slice(3, 'x') | list }}",
     "[[1, 2], [3, 4], [5]] [[1, 2], [3, 0]] [[1, 2], [3, 4], [5]] [[1, 2], [3, 'x'], [4, 'x']]"},
    {"{{ '42' | int }} {{ '42.7' | int }} {{ 'x' | int }} {{ 'x' | int(-1) }} {{ 3.9 | int }} {{ "
     "-3.9 | int }} {{ true | int }} {{ 'ff' | int(0, 16) }} {{ '0x1f' | int(0, 16) }} {{ ' 12 ' | "
     "int }} {{ none | int }} {{ '1_000' | int }}",
     "42 42 0 -1 3 -3 1 255 31 12 0 1000"},
    {"{{ '2.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ 'inf' | float "
     "}} {{ 'x' | float(1.5) }}",
     "2.5 0.0 3.0 1000.0 inf 1.5"},
    {"{{ 42.55 | round }} {{ 42.55 | round(1) }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 42.55 | "
     "round(1, 'floor') }} {{ 42.51 | round(1, 'ceil') }} {{ 5 | round }} {{ 1234 | round(-2) }} "
     "{{ 2.675 | round(2) }}",
     "43.0 42.5 2.0 4.0 42.5 42.6 5 1200 2.67"},
    {"{{ -5 | abs }} {{ (-5) | abs }} {{ -2.5 | abs }}", "5 5 2.5"},
    {"{{ nl | indent }}| {{ nl | indent(2, true) }}| {{ nl | indent(2, blank=true) }}| {{ nl | "
     "indent('> ') }}|",
     "a\n    b\n\n    c\n|   a\n  b\n\n  c\n| a\n  b\n  \n  c\n  | a\n> b\n\n> c\n|"},
    {"{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo "
     "bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}",
     "foo... foo ba... foo bar baz qux foo bar..."},
    {R"~({{ '<a href="x">\'&' | e }} {{ '<b>' | safe }} {{ ('<b>' | safe) + '<i>' }} {{ '<i>' + ('<b>' | safe) }} {{ ('<b>' | safe) | e }} {{ ('<b>' | safe) ~ '<i>' }} {{ '<b>' | e | e }} {{ '<b>' | e | forceescape }})~",
     "&lt;a href=&#34;x&#34;&gt;&#39;&amp; <b> <b>&lt;i&gt; &lt;i&gt;<b> <b> <b><i> &lt;b&gt; "
     "&amp;lt;b&amp;gt;"},
    {"{{ 'a b/c&d' | urlencode }} {{ {'a b': 'c/d', 'x': 1} | urlencode }} {{ 'Hello, big world' | "
     "wordcount }}",
     "a%20b/c%26d a+b=c%2Fd&x=1 3"},
    {"{{ 1000 | filesizeformat }} {{ 1 | filesizeformat }} {{ 999 | filesizeformat }} {{ 1234567 | "
     "filesizeformat }} {{ 1234567 | filesizeformat(true) }}",
     "1.0 kB 1 Byte 999 Bytes 1.2 MB 1.2 MiB"},
    {"{{ '  a ' | trim }}| {{ 'xax' | trim('x') }} {{ 5 | string + 'x' }} {{ [1] | string | length "
     "}}",
     "a| a 5x 3"},
    {"{{ d | attr('b') }}| {{ 'a' | attr('upper') is defined }}", "| True"},
    {"{{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is "
     "float }} {{ 's' is string }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ "
     "1 is sequence }} {{ missing is sequence }} {{ d is mapping }} {{ l is iterable }} {{ 5 is "
     "iterable }} {{ none is none }} {{ t is boolean }} {{ t is true }} {{ 1 is true }} {{ false "
     "is false }}",
     "True True True False True True True True True False True True True False True True True "
     "False True"},
    {"{{ 4 is even }} {{ 3 is odd }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'ABC' "
     "is upper }} {{ 'abc' is lower }} {{ 'x' is in ['x'] }} {{ 5 is not none }} {{ 1 is eq 1 }} "
     "{{ 2 is gt 1 }} {{ 1 is sameas true }} {{ none is sameas none }} {{ range is callable }} {{ "
     "'upper' is filter }} {{ 'nope' is filter }} {{ 'odd' is test }}",
     "True True True False True True True True True True False True True True False True"},
    {"{{ 'x' is string and t is boolean or false }} {{ (1, 2) is sequence }} {{ d.items() is "
     "sequence }} {{ (l | map('string')) is iterable }}",
     "True True False True"},
    {"{% for x in l %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% "
     "endfor %}",
     "1/3:3,2/3:1,3/3:2"},
    {"{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ "
     "loop.last }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
     "032TrueFalse11;121FalseFalse132;210FalseTrue11;"},
    {"{% for x in [] %}a{% else %}empty{% endfor %} {% for x in missing %}a{% else %}undef{% "
     "endfor %}",
     "empty undef"},
    {"{% for x in l if x > 1 %}{{ loop.index }}{{ x }}{% else %}none{% endfor %} {% for x in l if "
     "x > 9 %}x{% else %}none{% endfor %}",
     "1322 none"},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {% for (a, b) in [(1, 2), [3, 4]] "
     "%}{{ a }}{{ b }}{% endfor %} {% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% "
     "endfor %}",
     R"~(b=1;a=[1, 2.5, None, True];c={'k': 'v<&>"\''}; 1234 123)~"},
    {"{% for x in 'añ' %}[{{ x }}]{% endfor %} {% for k in d %}{{ k }}{% endfor %} {% for x in (1, "
     "2) %}{{ x }}{% endfor %} {% for x in 1, 2 %}{{ x }}{% endfor %}",
     "[a][ñ] bac 12 12"},
    {"{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %} {% for x in l "
     "%}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}no{% endfor %}",
     "32 3"},
    {"{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x "
     "}}@{{ loop.depth }}{% endif %}{% endfor %}",
     "(1@2(2@3))(3@2)"},
    {"{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %} {% for x in [1, 1, 2] %}{{ "
     "loop.changed(x) }}{% endfor %}",
     "aba TrueFalseTrue"},
    {"{% for x in l %}{% for y in l %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
     "1231;1232;1233;"},
    {"{% set x = 1 %}{% for i in l %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}", "2221"},
    {"{% set ns = namespace(x=1, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ "
     "ns.x }}{{ ns.y }}{{ ns.z is defined }}{{ ns['x'] }}",
     "7aFalse7"},
    {"{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}", "12"},
    {"{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = 1, 2 %}{{ c }}{% set (e, f2) = [3, 4] %}{{ e "
     "}}{{ f2 }}",
     "12(1, 2)34"},
    {"{% set x %}block {{ n }}{% endset %}[{{ x }}]{% set y | upper | replace('A', 'b') %}aa{{ n "
     "}}{% endset %}{{ y }}",
     "[block 7]bb7"},
    {"{% if false %}{% set n = 99 %}{% endif %}{{ n }}{% if true %}{% set n = 98 %}{% endif %}{{ n "
     "}}",
     "798"},
    {"{% if n == 1 %}a{% elif n == 7 %}b{% elif missing.x %}c{% else %}d{% endif %}", "b"},
    {"{% macro m(a, b=2, c='x') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ "
     "m(a=3, b=none) }} {{ m() }} {{ m(*[7, 8]) }} {{ m(**{'a': 9}) }}",
     "12x 125 3Nonex 2x 78x 92x"},
    {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "(1, 2){'x': 3}"},
    {"{% macro m(x) %}<{{ x }}{{ caller() }}>{% endmacro %}{% call m(5) %}body{{ n }}{% endcall %}",
     "<5body7>"},
    {"{% macro m() %}{{ caller(1, b=2) }}{% endmacro %}{% call(a, b=0) m() %}{{ a }}{{ b }}{% "
     "endcall %}",
     "12"},
    {"{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n * (fact(n - 1) | int) }}{% endif %}{% "
     "endmacro %}{{ fact(5) }}",
     "120"},
    {"{% macro m(a) %}{{ late }}{% endmacro %}{% set late = 'now' %}{{ m() }} {{ m.name }} {{ "
     "m.arguments }} {{ m is callable }}",
     "now m ('a',) True"},
    {"{% macro m(a) %}{% set q = 1 %}{{ q }}{% endmacro %}{{ m() }}{{ q is defined }} {% macro "
     "d1(a, b=a) %}{{ b }}{% endmacro %}{{ d1(4) }}",
     "1False 4"},
    {"{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }} {% with %}{% set z = 1 "
     "%}{% endwith %}{{ z is defined }}",
     "17False False"},
    {"{% filter upper %}abc {{ s }}{% endfilter %} {% filter replace('a', 'b') | upper %}aa{% "
     "endfilter %}",
     "ABC HELLO WORLD BB"},
    {"{% generation %}gen {{ n }}{% endgeneration %}{% generation %}{% set inside = 1 %}{% "
     "endgeneration %}{{ inside is defined }}",
     "gen 7False"},
    {"{% raw %}{{ not }} {% if %}{# c #}{% endraw %} {# comment {{ x }} #}after",
     "{{ not }} {% if %}{# c #} after"},
    {"{%- raw -%}  a  {%- endraw -%}  b", "ab"},
    {"{% block b %}x{{ n }}{% endblock %} {% print n, 2 %}", "x7 72"},
    {"{{ cycler('a', 'b').next() }}{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ "
     "c.next() }}{{ c.current }} {% set j = joiner('|') %}{{ j() }}a{{ j() }}b",
     "aabab a|b"},
    {"{{ dict(a=1, b=2) }} {{ dict({'x': 1}, y=2) }} {{ dict([('a', 1)]) }}",
     "{'a': 1, 'b': 2} {'x': 1, 'y': 2} {'a': 1}"},
    {R"~({{ 'a' 'b' "c" }} {{ "\"" }} {{ '\'' }} {{ '\u00e9\x41\101\n' | length }} {{ 'a\qb' }} {{ '{{' }} {{ "%}" }})~",
     R"~(abc " ' 4 a\qb {{ %})~"},
    {"{{ l.0 }} {{ users.1.name }} {{ users[0]['name'] }} {{ [1, [2, 3]][1][0] }} {{ "
     "'abc'.upper()[0] }} {{ {'a': {'b': 5}}.a.b }}",
     "3 Al bob 2 A 5"},
    {"{{ s.__class__ is defined }} {{ l.append is defined }} {{ d.update is defined }} {{ s.nope "
     "is defined }}",
     "False False False False"},
    {"{% set g = l | map('string') %}{{ g | list }}{{ g | list }} {% set g = l | select('odd') "
     "%}{{ g | first }}{{ g | first }}{{ g | first }}| {{ 3 in (l | map('int')) }}",
     "['3', '1', '2'][] 31| True"},
    {"{{ d.a.count(1) }} {{ l.index(2) }} {{ l.copy() }} {{ (1, 2, 1).count(1) }}",
     "2 2 [3, 1, 2] 2"},
    {"{{ none_ is none }} {{ none_ == none }} {{ none_ | string }} {{ none_ ~ '' }} {{ [none_] | "
     "tojson }}",
     "True True None None [null]"},
    {"{{ (1 if t) + 2 }} {{ (n > 5) | string }} {{ n > 5 and n < 10 }} {{ n if n is odd else 0 }} "
     "{{ [n, f, t] | map('string') | join(' ') }}",
     "3 True True 7 7 2.5 True"},
    {"{{ 'ÀÉ'.lower() }} {{ 'ñ'.upper() }} {{ 'İ'.lower() | length }} {{ 'ß'.upper() }} {{ "
     "'ﬁ'.upper() }}",
     "àé Ñ 2 SS FI"},
    {"{{ [3, [1, 2], {'a': (1, none)}] == [3, [1, 2], {'a': (1, none)}] }} {{ {'a': 1, 'b': 2} == "
     "{'b': 2, 'a': 1} }} {{ (1, 2) == [1, 2] }} {{ '1' == 1 }}",
     "True True False False"},
    {"{{ 5 | default(3) | string ~ 'x' }} {{ not missing is defined }} {{ not 1 in [2] }} {{ -1 | "
     "abs }} {{ 1 - 1 | abs }} {{ -n ** 2 }}",
     "5x True True 1 0 49"},
    {"{% if missing is defined and missing.x.y %}a{% endif %}{% if d.zz is defined %}b{% endif "
     "%}{% if d.c.k is string %}c{% endif %}",
     "c"},
    {"{% set x = [] %}{% for i in range(3) %}{% set x = x + [i] %}{% endfor %}{{ x }} {% set m = "
     "{'a': 1} %}{{ dict(m, b=2) }} {{ dict(m, **{'c': 3}) }}",
     "[] {'a': 1, 'b': 2} {'a': 1, 'c': 3}"},
    {"{{ [1, 2, 3].__len__ is defined }} {{ 'a'.join([]) }}| {{ (l | sort)[0] }} {{ l | sort | "
     "first }} {{ (users | first).name }}",
     "False | 1 1 bob"},
    {"{{ 'x' | string | upper | lower | trim | length }} {{ users[-1].name }} {{ users[0].age + "
     "users[1].age }} {{ '%.2f' % f }} {{ '%s' | format(f) }} {{ f | round | int }}",
     "1 cy 4 2.50 2.5 2"},
    {"  {% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"},
    {"a\n   {%- if true -%}   \n  x  \n {%- endif %}  \n b", "ax  \n b"},
    {"x {{- 1 -}} y {{ 2 }}\nz\n\n", "x1y 2\nz\n"},
    {"{% for i in [1,2] %}\n{{ i }}\n{% endfor %}\nend", "1\n2\nend"},
    {"{% for i in [1,2] -%}\n   {{ i }}\n{%- endfor -%}\n  end", "12end"},
    {"   {%+ if true %}a{% endif +%}\n b", "   a\n b"},
    {"  {# c #}\n  x {# d #}\ny\n {#- e -#}\n z", "  x yz"},
    {"a\r\nb\rc{% if true %}\r\nd{% endif %}\r\n", "a\nb\ncd"},
    {"\n\n  {% set x = 1 %}  \n  {{ x }}  \n", "\n\n  \n  1  "},
    {"{%- set x = 'a\nb' -%}\n{{ x }}\n\n\n", "a\nb\n\n"},
    {"{% raw %}\n a {% endraw %}\n  {% raw -%}\n b \n{%- endraw %}\nc", "\n a bc"},
    {"\302\240{%- if true %} x{% endif %}\343\200\200{%- if true -%}\342\200\203 y{% endif %}",
     " xy"},
    {"\t{% if true %}\n\t\tx\n\t{% endif %}\n", "\t\tx\n"},
    {"a {% if true %} b {% endif %} c\n{% if true %}\n\n d\n{% endif %}\n\n", "a  b  c\n\n d\n"},
    {"{{ '}}' }}{{ {'a': {'b': 1}} }}{{ {'a': 1}['a'] }}", "}}{'a': {'b': 1}}1"},
    {"{% if true: %}x{% endif %}{% for x in [1]: %}{{ x }}{% endfor %}", "x1"},
    {"{{\n 1\n +\n 2\n}}\n{%\nset x = 3\n%}\n{{ x }}", "3\n3"},
    {"{", "{"},
    {"{ {", "{ {"},
    {"a{b}c%}#}}}", "a{b}c%}#}}}"},
    {"", ""},
    {"\n", ""},
    {"\n\n", "\n"},
    {"{{ 1 }}\n", "1"},
    {"{#-#}x{#+#}", "x"},
    {"{{-1}}", "1"},
    {"{{ -1 }}{{- 2 -}} {{+3}}", "-123"},
};

TEST(Jinja, PrintsWhatPythonPrints) {
  for (const TextRow& row : kTexts) {
    SCOPED_TRACE(row.source);
    try {
      EXPECT_EQ(RenderText(row.source), row.text);
    } catch (const Error& error) {
      ADD_FAILURE() << error.what();
    }
  }
}

constexpr std::string_view kErrors[] = {
    "{{ missing.x }}",
    "{{ missing['x'] }}",
    "{{ missing() }}",
    "{{ missing + 1 }}",
    "{{ 1 + missing }}",
    "{{ missing < 1 }}",
    "{{ missing | tojson }}",
    "{{ missing | int }}",
    "{{ -missing }}",
    "{{ missing[1:] }}",
    "{{ d.zz.y }}",
    "{{ none_.x.y }}",
    "{{ 1 + 'a' }}",
    "{{ 'a' + 1 }}",
    "{{ 'a' + none }}",
    "{{ l + (1,) }}",
    "{{ {} + {} }}",
    "{{ 1 / 0 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 0 ** -1 }}",
    "{{ 'a' < 1 }}",
    "{{ [1] < [none] }}",
    "{{ 1 in 5 }}",
    "{{ 1 in 'abc' }}",
    "{{ 5() }}",
    "{{ s.nope() }}",
    "{{ l.append(4) }}",
    "{{ d.update({'x': 1}) }}",
    "{{ d.pop('b') }}",
    "{{ l.sort() }}",
    "{{ s.__class__.x }}",
    "{% for x in 5 %}{% endfor %}",
    "{% for x in none %}{% endfor %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}",
    "{% set d.x = 1 %}",
    "{% set nope.x = 1 %}",
    "{{ raise_exception('boom') }}",
    "{{ range(1000000) }}",
    "{{ range(0, 5, 0) }}",
    "{{ l | map('nope') | list }}",
    "{{ l | select('nope') | list }}",
    "{{ 'x'.split('') }}",
    "{{ s.index('zzz') }}",
    "{{ l | tojson | tojson(nope=1) }}",
    "{{ (l | map('string')) | tojson }}",
    "{{ (l | map('string')) | length }}",
    "{{ range | tojson }}",
    "{{ {'a': [1]} | dictsort('x', 'y') }}",
    "{{ [1, 'a'] | sort }}",
    "{{ {[1]: 2} }}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{{ 's' | join(1, 2, 3, 4) }}",
    "{{ s.upper(1) }}",
    "{{ s.replace('a') }}",
    "{{ l['a'].b }}",
    "{{ d[1:2] }}",
    "{{ l['a':] }}",
    "{{ '%d' % 'x' }}",
    "{{ '%s %s' % 'x' }}",
    "{{ '%s' % (1, 2) }}",
    "{{ '{}'.format() }}",
    "{{ ','.join([1]) }}",
    "{{ l[::0] }}",
    "{{ s[1.5:] }}",
    "{{ 5 | length }}",
    "{{ 5 | list }}",
    "{{ l | attr }}",
    "{{ l | nope }}",
    "{{ l is nope }}",
    "{{ }}",
    "{{ 1 + }}",
    "{{ (1 }}",
    "{{ 1) }}",
    "{{ [1, 2 }}",
    "{{ 'a }}",
    "{{ a b }}",
    "{{ 1 2 }}",
    "{{ a.1b }}",
    "{{ a. }}",
    "{{ a[ ] }}",
    "{{ a | }}",
    "{{ a is }}",
    "{{ @ }}",
    "{{ ! a }}",
    "{{ a = 1 }}",
    "{{ 1 if }}",
    "{{ f(a=1, 2) }}",
    "{{ f(*a, *b) }}",
    "{{ x is defined is defined }}",
    "{% if %}a{% endif %}",
    "{% if true %}a",
    "{% endif %}",
    "{% else %}",
    "{% for x l %}{% endfor %}",
    "{% for x in l %}",
    "{% for 1 in l %}{% endfor %}",
    "{% set x %}",
    "{% set 1 = 2 %}",
    "{% set true = 2 %}",
    "{% set x = %}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro %}{% endmacro %}",
    "{% call x %}{% endcall %}",
    "{% include 'x' %}",
    "{% import 'x' as y %}",
    "{% extends 'x' %}",
    "{% from 'x' import y %}",
    "{% nope %}",
    "{% break %}",
    "{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% raw %}x",
    "{# x",
    "{{ x",
    "{% if x",
    "{% if x }}",
    "{{ x %}",
    "{% %}",
    R"~({{ '\x4' }})~",
    R"~({{ '\u12' }})~",
    R"~({{ '\ud800' | tojson(ensure_ascii=True) | missing_filter }})~",
    "{% endfor %}",
    "{% with a %}{% endwith %}",
    "{% if true %}{% endfor %}",
};

TEST(Jinja, RefusesWhatPythonRefuses) {
  for (std::string_view source : kErrors) {
    std::string error = ErrorOf(source);
    EXPECT_TRUE(error.starts_with("test:1:") || error.starts_with("test:2:"))
        << source << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << source;
  }
}

TEST(Jinja, B025UnaryMinusStandsBeforeAnyOperand) {
  EXPECT_EQ(RenderText("{{ items[:-n] | string }} {{ -n }} {{ 3 - -n }}",
                       R"({"items": [1, 2, 3], "n": 1})"),
            "[1, 2] -1 4");
}

struct ErrorRow {
  std::string_view source;
  std::string_view error;
};
constexpr ErrorRow kMessages[] = {
    {"{{ raise_exception('roles must\nalternate') }}", "test:1:19: roles must\\x0Aalternate"},
    {"a\n  {{ tool.name }}", "test:2:10: 'tool' is undefined"},
    {"{{ {'a': 1}.b.c }}", "test:1:14: 'dict object' has no attribute 'b'"},
    {"{{ [].append(1) }}", "test:1:13: access to attribute 'append' of 'list' object is unsafe."},
    {"{% if x %}", "test:1:11: expected 'endif', found the end of the template"},
    {"{% include 'x' %}",
     "test:1:4: 'include' needs another template, which a chat template cannot have"},
    {"\n\n{{ 1 | nope }}", "test:3:8: no filter named 'nope'"},
    {"{# x", "test:1:1: Missing end of comment tag"},
    {"{{ 'a' + 1 }}", "test:1:4: can only concatenate str (not \"int\") to str"},
    {"{% set x = 1 %}{% set x.y = 2 %}",
     "test:1:19: cannot assign attribute on non-namespace object"},
};

TEST(Jinja, ErrorsNameTemplateLineColumnAndCause) {
  for (const ErrorRow& row : kMessages) EXPECT_EQ(ErrorOf(row.source), row.error) << row.source;
}

TEST(Jinja, UnknownFiltersInsideConditionsFailOnlyWhenReached) {
  EXPECT_EQ(RenderText("{% if missing %}{{ 1 | nope }}{% endif %}{{ 1 if true else 2 | nope }}"),
            "1");
  EXPECT_EQ(ErrorOf("{% if true %}{{ 1 | nope }}{% endif %}"), "test:1:21: no filter named 'nope'");
}

TEST(Jinja, StrftimeNowPrintsTheTimeGiven) {
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  JinjaTemplate tmpl("test",
                     "{{ strftime_now('%d %b %Y') }}{{ strftime_now('') }}{{ strftime_now('%') }}");
  EXPECT_EQ(tmpl.Render(jinja::Value::MakeDict({}), &now), "02 Jan 2026%");
}

TEST(Jinja, FromJsonReadsAndRefuses) {
  EXPECT_EQ(RenderText("{{ ('{\"b\": [1, 0.80]}' | from_json).b[1] }}"), "0.8");
  EXPECT_NE(ErrorOf("{{ '{' | from_json }}"), "");
  EXPECT_NE(ErrorOf("{{ 5 | from_json }}"), "");
}

TEST(Jinja, ReadsListsNamesThatTheContextMustGive) {
  JinjaTemplate tmpl(
      "test",
      "{% for m in messages %}{{ m.x }}{{ loop.index }}{% endfor %}{% macro f(a) %}{{ a ~ b }}"
      "{{ caller }}{% endmacro %}{% with c = d %}{{ c }}{% endwith %}{% set e = g %}");
  EXPECT_EQ(tmpl.reads(), (std::set<std::string>{"b", "d", "g", "messages"}));
}

// ---- hostile templates

std::string Repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

TEST(Jinja, LimitsEndWhatWouldNotEnd) {
  constexpr ErrorRow kRows[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}x{% "
       "endfor %}{% endfor %}"
       "{% endfor %}",
       "steps"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels"},
      {"{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}", "levels"},
      {"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "levels"},
      {"{{ 'x' * 10**12 }}", "bytes"},
      {"{{ 'x' * 10**30 }}", "bytes"},
      {"{{ [1] * 10**12 }}", "bytes"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
       "endfor %}",
       "bytes"},
      {"{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% "
       "endfor %}",
       "bytes"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
       "endfor %}",
       "bytes"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(999) %}{% set ns.l = [ns.l] %}{% endfor "
       "%}",
       "deeper"},
      {"{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% "
       "endfor %}{{ ns.l }}",
       "steps"},
      {"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}"
       "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
       "steps"},
      {"{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% for j in range(999) %}"
       "{% set ns.l = ns.l + ['a' ~ i ~ j] %}{% endfor %}{% endfor %}",
       "steps"},
      {"{{ 'a'.ljust(10**11) }}", "bytes"},
      {"{{ 'a'.zfill(10**11) }}", "bytes"},
      {"{{ 'a' | center(10**11) }}", "bytes"},
      {"{{ 'a' | indent(10**11) }}", "bytes"},
      {"{{ [1] | tojson(indent=10**11) }}", "bytes"},
      {"{{ '\t'.expandtabs(10**11) }}", "bytes"},
      {"{{ [1] | batch(10**11, 0) | list }}", "bytes"},
      {"{{ [1] | slice(10**11) | list }}", "bytes"},
      {"{{ ('a' * 10**6).replace('a', 'b' * 10**6) }}", "bytes"},
      {"{{ '%99999999999d' % 1 }}", "characters"},
      {"{{ '{:99999999999}'.format(1) }}", "characters"},
      {"{{ range(10**9) }}", "range"},
      {"{{ range(-10**9, 10**9, 1) }}", "range"},
      {"{{ 10 ** 99 }}", "range"},
      {"{{ 2 ** 126 * 4 }}", "range"},
      {"{{ -(-2 ** 126 * 2) }}", "range"},
      {"{{ 999999999999999999999999999999999999999999 }}", "range"},
      {"{{ 'a'.split('a', 10 ** 20) }}", "range"},
  };
  JinjaLimits limits;
  for (const ErrorRow& row : kRows) {
    limits.steps = row.error == "steps" ? 1'000'000 : 20'000'000;
    std::string error = ErrorOf(row.source, limits);
    EXPECT_NE(error.find(row.error), std::string::npos) << row.source << ": " << error;
  }
}

TEST(Jinja, LimitsAreOptions) {
  JinjaLimits limits;
  limits.output_bytes = 10;
  EXPECT_EQ(RenderText("0123456789", kContext, limits), "0123456789");
  EXPECT_NE(ErrorOf("0123456789a", limits), "");
  limits = {};
  limits.range = 3;
  EXPECT_EQ(ErrorOf("{{ range(3) }}", limits), "");
  EXPECT_NE(ErrorOf("{{ range(4) }}", limits), "");
  limits = {};
  limits.steps = 50;
  EXPECT_EQ(ErrorOf("{{ 1 + 1 }}", limits), "");
  EXPECT_NE(ErrorOf("{% for i in range(60) %}{% endfor %}", limits), "");
  limits = {};
  limits.live_bytes = 10'000;
  EXPECT_EQ(ErrorOf("{% for i in range(99) %}{{ 'x' * 1000 }}{% endfor %}", limits),
            "");  // never alive together
  EXPECT_NE(ErrorOf("{{ 'x' * 11000 }}", limits), "");
  limits = {};
  limits.depth = 10;
  EXPECT_NE(ErrorOf("{{ [[[[[[[[[[[1]]]]]]]]]]] }}", limits), "");
}

TEST(Jinja, DeepNestingIsAnErrorAtLoad) {
  struct Row {
    std::string_view open, middle, close;
  };
  constexpr Row kRows[] = {
      {"(", "1", ")"},      {"[", "1", "]"},           {"{1:", "1", "}"},
      {"-", "1", ""},       {"not ", "1", ""},         {"f(", "1", ")"},
      {"a[", "1", "]"},     {"1 if 1 else ", "1", ""}, {"1 | default(", "1", ")"},
      {"1 ** (", "1", ")"}, {"1 is eq [", "1", "]"},
  };
  for (const Row& row : kRows) {
    std::string source = "{{ " + Repeated(row.open, 20'000) + std::string(row.middle) +
                         Repeated(row.close, 20'000) + " }}";
    EXPECT_NE(ErrorOf(source).find("deeper"), std::string::npos) << row.open;
  }
  for (std::string_view tail : {".a", "[0]", "()", " | default", " is defined"}) {
    EXPECT_NE(ErrorOf("{{ x" + Repeated(tail, 20'000) + " }}"), "") << tail;
  }
  EXPECT_NE(ErrorOf(Repeated("{% if 1 %}", 20'000) + Repeated("{% endif %}", 20'000)), "");
  EXPECT_NE(ErrorOf(Repeated("{% for x in [1] %}", 20'000)), "");
  EXPECT_NE(ErrorOf("{% for " + Repeated("(", 20'000) + "x"), "");
  // What is flat in Jinja stays so, however long.
  EXPECT_EQ(RenderText("{{ 0" + Repeated(" + 1", 5'000) + " }}"), "5000");
  EXPECT_EQ(RenderText("{{ ''" + Repeated(" ~ 1", 5'000) + " }}"), Repeated("1", 5'000));
  EXPECT_EQ(RenderText("{{ 0" + Repeated(" or 0", 5'000) + " }}"), "0");
  EXPECT_EQ(RenderText("{% if 0 %}" + Repeated("{% elif 0 %}", 5'000) + "{% else %}x{% endif %}"),
            "x");
}

TEST(Jinja, CyclesThroughNamespacesAndMacrosLeaveNothingBehind) {
  EXPECT_EQ(ErrorOf("{% set a = namespace() %}{% set b = namespace(a=a) %}{% set a.b = b %}{% set "
                    "a.l = [a, b] %}"
                    "{% macro m() %}{{ m }}{% endmacro %}{% set a.m = m %}{{ a }}{{ a.l }}{{ m() }}"
                    "{% for x in [1] recursive %}{% set a.loop = loop %}{% set a.c = loop.cycle "
                    "%}{% endfor %}"),
            "");
  // A long chain, one inside the other.
  EXPECT_EQ(ErrorOf("{% set ns = namespace(x=0) %}{% for i in range(50000) %}{% set ns.x = "
                    "namespace(x=ns.x) %}"
                    "{% endfor %}"),
            "");
}

TEST(Jinja, EveryCutOfATemplateLoadsOrIsRefusedInOneLine) {
  constexpr std::string_view kSource =
      "{%- macro m(a, b='x') -%}{{ a ~ b | upper }}{%- endmacro %}{# note #}{% raw %}{{ }}{% "
      "endraw %}\n"
      "{% for k, v in d.items() if k is not none %}{{ loop.index }}{% set ns.x = v[1:-1]['y'] %}{% "
      "endfor %}"
      "{% if a.b('q\\n', c=1.5e3, *l) and not x in [1, {'a': (2,)}] %}{% call m(1) %}z{% endcall "
      "%}{% endif %}é";
  for (size_t size = 0; size <= kSource.size(); ++size) {
    std::string error = ErrorOf(kSource.substr(0, size));
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(Jinja, RandomTokensLoadOrAreRefusedInOneLine) {
  constexpr std::string_view kPieces[] = {
      "{{",     "}}",      "{%",       "%}",       "{#",       "#}",          "-",      "+",
      " ",      "\n",      "for",      "in",       "if",       "else",        "endif",  "endfor",
      "set",    "=",       "==",       "a",        "b",        "x.y",         "(",      ")",
      "[",      "]",       "{",        "}",        ",",        ":",           "|",      "is",
      "not",    "defined", "'s'",      "\"",       "1",        "2.5",         "**",     "//",
      "%",      "~",       "macro",    "endmacro", "call",     "endcall",     "loop",   "raw",
      "endraw", "upper",   "join",     "map",      "range(9)", "namespace()", "l",      "d",
      "s",      "\\",      "\xC3\xA9", "\xFF",     "*",        "<",           "tojson", "break"};
  uint64_t state = 12345;
  auto next = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  JinjaLimits limits;
  limits.steps = 20'000;
  int rendered = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string source = next(2) == 0 ? "{{ " : "{% ";
    bool variable = source[1] == '{';
    for (uint64_t n = next(12) + 1; n > 0; --n)
      source += std::string(kPieces[next(std::size(kPieces))]) + " ";
    source += variable ? "}}" : "%}";
    std::string error = ErrorOf(source, limits);
    rendered += error.empty();
    EXPECT_EQ(error.find('\n'), std::string::npos) << source;
  }
  EXPECT_GT(rendered, 100);
}

TEST(Jinja, ABigTemplateLoadsFast) {
  std::string source =
      Repeated("{% if a %}{{ b['c'] | default('x') ~ 1 }} text{% endif %}\n", 2'000);
  ASSERT_GT(source.size(), 100'000u);
  auto start = std::chrono::steady_clock::now();
  JinjaTemplate tmpl("test", source);
  auto spent = std::chrono::steady_clock::now() - start;
  EXPECT_LT(std::chrono::duration<double>(spent).count(),
            1.0);  // a few milliseconds, on a quiet machine
  EXPECT_NE(ErrorOf(std::string(JinjaTemplate::kMaxSourceBytes + 1, 'x')), "");
}

}  // namespace
}  // namespace lockstep
