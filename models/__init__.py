"""The networks: configuration, one composable decoder, its cache, sharding, the native checkpoint and the tokenizer."""
