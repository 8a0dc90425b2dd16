"""What operator and agent agree on: the configuration document and the names both use.

The operator writes the document, the agent reads it. Standard library only: the operator imports this
package and nothing else of the agent.

- `document`: the frozen dataclasses of the document, with `parse` and `dump`
- `check`: what a well-formed document may still get wrong, each with how to mend it
- `attributes`: the one table of device attributes
- `template`: values with `{attribute}` placeholders
- `names`: resource names, device ids, labels, environment variables
- `reasons`: the words for what is wrong with devices, nodes and objects, each with its meaning
"""
