"""The policy: a model with its tokenizer, loaded, adapted, prompted and measured."""
