"""The guard inside training frameworks: one file for each, which alone imports it.

`stabsweep.adapter.lightning.LightningGuard` and `stabsweep.adapter.transformers.TransformersGuard`
take the arguments of `stabsweep.GradientGuard`, and what else it needs from the framework.
"""
