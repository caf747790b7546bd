"""Llama 1 to 3.3, SmolLM2 and their kin: TEMPORARY STAND-IN."""
from zoo.models.config import *
from ..blocks import ATTENTION, EMBEDDING_AND_HEAD, GATED_MLP, PRE_NORMS, ROPE_BUFFERS
ARCHITECTURES = ("LlamaForCausalLM",)
ROWS = (*EMBEDDING_AND_HEAD, *PRE_NORMS, *ATTENTION, *GATED_MLP)
PASSENGERS = ROPE_BUFFERS
TIED = ("lm_head.weight", "model.embed_tokens.weight")
TINY = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 128, "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"}
def config(hf):
    n=Norm(epsilon=1e-5); h=hf.get("head_dim") or hf["hidden_size"]//hf["num_attention_heads"]
    l=Layer(attn_norm=n,mlp_norm=n,attn=Attention(heads=hf["num_attention_heads"],kv_heads=hf["num_key_value_heads"],head_dim=h,rope=DefaultRope(theta=1e4),qkv_bias=hf.get("attention_bias",False),output_bias=hf.get("attention_bias",False)),mlp=Mlp(ffn=hf["intermediate_size"],activation="silu",bias=hf.get("mlp_bias",False)))
    return ModelConfig(vocab=hf["vocab_size"],embed=hf["hidden_size"],layers=(l,)*hf["num_hidden_layers"],final_norm=n,tied_head=hf.get("tie_word_embeddings",False),max_positions=hf["max_position_embeddings"])
