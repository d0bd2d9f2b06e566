// Stands in for editors, which are not drawn.
export const AnnotationQueryEditor = undefined;
export const OpenLayersProvider = undefined;
export default undefined;
